//! `storage.StorageService`: the block devices.

use mainstay_api::envelope;
use mainstay_api::storage::disk::DiskType;
use mainstay_api::storage::storage_service_server::StorageService;
use mainstay_api::storage::{Disk as WireDisk, Disks, DisksResponse, Partition as WirePartition};
use mainstay_node::disks::{self, Disk, Media, Partition};
use tonic::{Request, Response, Status};

use crate::rpc::{fitting, reading};

#[derive(Debug)]
pub(super) struct Storage;

#[tonic::async_trait]
impl StorageService for Storage {
    async fn disks(&self, _: Request<()>) -> Result<Response<DisksResponse>, Status> {
        let answer = reading("the disks", || {
            let found = disks::disks()
                .map_err(|error| Status::internal(format!("cannot read the disks: {error}")))?;
            let answer = Disks {
                metadata: None,
                disks: found.into_iter().map(disk).collect(),
            };
            fitting(answer, "disks")
        });
        Ok(Response::new(envelope(answer.await?)))
    }
}

fn disk(disk: Disk) -> WireDisk {
    let media = match disk.media {
        Media::Unknown => DiskType::Unknown,
        Media::SolidState => DiskType::Ssd,
        Media::Rotating => DiskType::Hdd,
        Media::Nvme => DiskType::Nvme,
        Media::SdCard => DiskType::Sd,
        Media::Optical => DiskType::Cd,
    };
    WireDisk {
        size: disk.size_bytes,
        model: disk.model,
        device_name: device(&disk.name),
        name: disk.device_label,
        serial: disk.serial,
        modalias: disk.modalias,
        uuid: disk.uuid,
        wwid: disk.wwid,
        r#type: media.into(),
        bus_path: disk.bus_path,
        system_disk: disk.holds_root,
        subsystem: disk.subsystem,
        readonly: disk.readonly,
        rotational: disk.rotational,
        removable: disk.removable,
        transport: disk.transport.to_owned(),
        kind: disk.kind.name().to_owned(),
        partitions: disk.partitions.into_iter().map(partition).collect(),
        mounted_on: disk.mounted_on,
        logical_block_size: disk.logical_block_bytes,
        physical_block_size: disk.physical_block_bytes,
        device_number: disk.device_number,
        holders: disk.holders,
        slaves: disk.slaves,
        backing: disk.backing,
        vendor: disk.vendor,
        revision: disk.revision,
    }
}

fn partition(partition: Partition) -> WirePartition {
    WirePartition {
        device_name: device(&partition.name),
        number: partition.number,
        size: partition.size_bytes,
        start: partition.start_bytes,
        readonly: partition.readonly,
        mounted_on: partition.mounted_on,
        device_number: partition.device_number,
        holders: partition.holders,
        label: partition.label,
        uuid: partition.uuid,
    }
}

fn device(name: &str) -> String {
    format!("/dev/{name}")
}
