//! `mainstay disks`

use clap::Args;
use mainstay_api::storage::disk::DiskType;
use mainstay_api::storage::storage_service_client::StorageServiceClient;
use mainstay_api::storage::{Disk, Disks as NodeDisks};

use super::connect;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;
use mainstay_client::Answer;
use mainstay_client::format::{Table, size};

/// Show disks and their partitions
///
/// Lists block devices that have a size: disks, loop devices in use, RAID and device-mapper
/// devices.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay disks\n  \
    mainstay disks --physical                    without loop, zram, RAID and device-mapper\n  \
    mainstay disks -o json | jq '.[].disks[] | {deviceName, size, serial}'\n\n\
    The disk with the root file system is marked with *.")]
pub struct Disks {
    /// Show only disks, without devices on top of others or in memory
    #[arg(short, long)]
    physical: bool,
}

impl Disks {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let mut answers = client
            .call_all((), |_, request| {
                let mut storage = StorageServiceClient::new(client.channel())
                    .max_decoding_message_size(mainstay_client::MAX_MESSAGE_BYTES);
                async move { storage.disks(request).await }
            })
            .await?;
        if self.physical {
            for answer in &mut answers {
                let disks = &mut answer.message.disks;
                disks.retain(|disk| matches!(disk.kind.as_str(), "disk" | "rom" | ""));
            }
        }
        match global.output {
            Format::Table => client.print_table(table(answers))?,
            format => output::print_answers(format, "storage.Disks", &answers)?,
        }
        client.finish()
    }
}

fn table(answers: Vec<Answer<NodeDisks>>) -> Table {
    let mut table = Table::new(&[
        "NODE",
        "DEVICE",
        "SIZE",
        "TYPE",
        "TRANSPORT",
        "MODEL",
        "SERIAL",
        "MOUNTED ON",
    ]);
    for Answer { node, message } in answers {
        for disk in message.disks {
            let mark = if disk.system_disk { "*" } else { "" };
            table.row(vec![
                node.clone(),
                format!("{}{mark}", disk.device_name),
                size(disk.size),
                kind(&disk).to_owned(),
                or_dash(&disk.transport),
                or_dash(&model(&disk)),
                or_dash(&disk.serial),
                disk.mounted_on.join(" "),
            ]);
            for partition in &disk.partitions {
                table.row(vec![
                    node.clone(),
                    format!("  {}", partition.device_name),
                    size(partition.size),
                    "partition".to_owned(),
                    String::new(),
                    partition.label.clone(),
                    String::new(),
                    partition.mounted_on.join(" "),
                ]);
            }
        }
    }
    table
}

fn kind(disk: &Disk) -> &str {
    match disk.r#type() {
        DiskType::Ssd => "ssd",
        DiskType::Hdd => "hdd",
        DiskType::Nvme => "nvme",
        DiskType::Sd => "sd",
        DiskType::Cd => "cd",
        DiskType::Unknown if disk.kind.is_empty() => "-",
        DiskType::Unknown => &disk.kind,
    }
}

/// The model, or what a virtual device stands for.
fn model(disk: &Disk) -> String {
    match (disk.model.as_str(), disk.vendor.as_str()) {
        ("", _) => disk.backing.clone(),
        // Virtio devices have a number in place of a vendor.
        (model, vendor) if vendor.is_empty() || vendor.starts_with("0x") => model.to_owned(),
        (model, vendor) => format!("{vendor} {model}"),
    }
}

fn or_dash(text: &str) -> String {
    match text {
        "" => "-".to_owned(),
        text => text.to_owned(),
    }
}
