//! Block devices: `/sys/block`, their partitions, and where they are mounted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

const SYSFS: &str = "/sys";
/// sysfs counts in sectors of this size, whatever the device's own.
const SECTOR_BYTES: u64 = 512;
/// No file read here is longer.
const MAX_FILE_BYTES: u64 = 4096;
/// The header of a SCSI vital product data page.
const VPD_HEADER_BYTES: usize = 4;

/// A block device that is not a partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Disk {
    /// The name as in `/dev`, such as `sda`.
    pub name: String,
    pub size_bytes: u64,
    pub device_number: String,
    pub kind: Kind,
    pub media: Media,
    pub rotational: bool,
    pub removable: bool,
    pub readonly: bool,
    /// How the disk is attached; empty if it is virtual or unknown.
    pub transport: &'static str,
    pub vendor: String,
    pub model: String,
    pub revision: String,
    pub serial: String,
    pub wwid: String,
    pub uuid: String,
    pub modalias: String,
    /// The `device/name` of sysfs.
    pub device_label: String,
    /// The path below `/sys/devices`.
    pub bus_path: String,
    /// The target of the `subsystem` link.
    pub subsystem: String,
    pub logical_block_bytes: u32,
    pub physical_block_bytes: u32,
    pub holders: Vec<String>,
    pub slaves: Vec<String>,
    /// The file of a loop device, or the name of a device-mapper device.
    pub backing: String,
    /// True if the root file system is on the disk, or on a device on top of it.
    pub holds_root: bool,
    pub mounted_on: Vec<String>,
    pub partitions: Vec<Partition>,
}

/// A partition of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Partition {
    pub name: String,
    pub number: u32,
    pub device_number: String,
    pub size_bytes: u64,
    pub start_bytes: u64,
    pub readonly: bool,
    pub holders: Vec<String>,
    pub label: String,
    pub uuid: String,
    pub mounted_on: Vec<String>,
}

/// The kind of a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    #[default]
    Disk,
    Loop,
    DeviceMapper,
    Raid,
    Zram,
    Ram,
    Rom,
    NetworkBlockDevice,
    Rados,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Loop => "loop",
            Self::DeviceMapper => "dm",
            Self::Raid => "md",
            Self::Zram => "zram",
            Self::Ram => "ram",
            Self::Rom => "rom",
            Self::NetworkBlockDevice => "nbd",
            Self::Rados => "rbd",
        }
    }

    fn of(name: &str) -> Self {
        let known = [
            ("loop", Self::Loop),
            ("dm-", Self::DeviceMapper),
            ("md", Self::Raid),
            ("zram", Self::Zram),
            ("ram", Self::Ram),
            ("sr", Self::Rom),
            ("nbd", Self::NetworkBlockDevice),
            ("rbd", Self::Rados),
        ];
        let numbered = |prefix: &str| {
            name.strip_prefix(prefix)
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '_'))
        };
        known
            .into_iter()
            .find(|(prefix, _)| numbered(prefix))
            .map_or(Self::Disk, |(_, kind)| kind)
    }
}

/// The medium of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Media {
    #[default]
    Unknown,
    SolidState,
    Rotating,
    Nvme,
    SdCard,
    Optical,
}

/// Returns the block devices that have a size, sorted by name, with their partitions.
pub fn disks() -> io::Result<Vec<Disk>> {
    let mounts = MountPoints::read()?;
    disks_in(Path::new(SYSFS), &mounts)
}

/// Where devices are mounted, by `major:minor`.
#[derive(Debug, Default)]
struct MountPoints {
    by_device: BTreeMap<String, Vec<String>>,
    root: Option<String>,
}

impl MountPoints {
    fn read() -> io::Result<Self> {
        let mut points = Self::default();
        for ((major, minor), mount) in mainstay_mounts::read_with_devices()? {
            let device = format!("{major}:{minor}");
            if mount.target == Path::new("/") {
                points.root = Some(device.clone());
            }
            let target = mount.target.to_string_lossy().into_owned();
            let of_device = points.by_device.entry(device).or_default();
            if !of_device.contains(&target) {
                of_device.push(target);
            }
        }
        Ok(points)
    }

    fn of(&self, device: &str) -> Vec<String> {
        self.by_device.get(device).cloned().unwrap_or_default()
    }
}

fn disks_in(sysfs: &Path, mounts: &MountPoints) -> io::Result<Vec<Disk>> {
    let mut disks = Vec::new();
    for entry in fs::read_dir(sysfs.join("block"))? {
        let dir = entry?.path();
        // A device that goes meanwhile has no size any more.
        let found = disk(&dir, mounts).filter(|disk| disk.size_bytes > 0);
        disks.extend(found);
    }
    disks.sort_by_key(|disk| natural(&disk.name));
    mark_root(&mut disks, mounts);
    Ok(disks)
}

fn disk(dir: &Path, mounts: &MountPoints) -> Option<Disk> {
    let raw_name = dir.file_name()?.to_string_lossy().into_owned();
    let name = raw_name.replace('!', "/");
    let kind = Kind::of(&name);
    let device = fs::canonicalize(dir).ok()?;
    let path = device.to_string_lossy();
    let rotational = text(&dir.join("queue/rotational")) == "1";
    let device_number = text(&dir.join("dev"));
    let backing = match kind {
        Kind::Loop => text(&dir.join("loop/backing_file")),
        Kind::DeviceMapper => text(&dir.join("dm/name")),
        _ => String::new(),
    };
    let first = |files: &[&str]| {
        let mut texts = files.iter().map(|file| text(&dir.join(file)));
        texts.find(|text| !text.is_empty()).unwrap_or_default()
    };
    Some(Disk {
        size_bytes: sectors(&dir.join("size")),
        media: media(&name, kind, rotational),
        rotational,
        removable: text(&dir.join("removable")) == "1",
        readonly: text(&dir.join("ro")) == "1",
        transport: transport(&path),
        vendor: first(&["device/vendor"]),
        model: first(&["device/model"]),
        revision: first(&["device/rev", "device/firmware_rev"]),
        serial: serial(dir),
        wwid: first(&["wwid", "device/wwid"]),
        uuid: first(&["uuid", "device/uuid", "dm/uuid", "md/uuid"]),
        modalias: first(&["device/modalias"]),
        device_label: first(&["device/name"]),
        bus_path: path
            .split_once("/sys/devices")
            .map(|(_, below)| below.to_owned())
            .unwrap_or_default(),
        subsystem: link(&dir.join("subsystem")),
        logical_block_bytes: number(&dir.join("queue/logical_block_size")),
        physical_block_bytes: number(&dir.join("queue/physical_block_size")),
        holders: names(&dir.join("holders")),
        slaves: names(&dir.join("slaves")),
        mounted_on: mounts.of(&device_number),
        partitions: partitions(dir, mounts),
        holds_root: false,
        backing,
        device_number,
        kind,
        name,
    })
}

fn partitions(disk: &Path, mounts: &MountPoints) -> Vec<Partition> {
    let Ok(entries) = fs::read_dir(disk) else {
        return Vec::new();
    };
    let mut found: Vec<_> = entries
        .filter_map(|entry| partition(&entry.ok()?.path(), mounts))
        .collect();
    found.sort_by_key(|partition| partition.number);
    found
}

/// A directory is a partition if it has a number.
fn partition(dir: &Path, mounts: &MountPoints) -> Option<Partition> {
    let number = text(&dir.join("partition")).parse().ok()?;
    let uevent = text(&dir.join("uevent"));
    let property = |name: &str| {
        uevent
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            .unwrap_or_default()
            .to_owned()
    };
    let device_number = text(&dir.join("dev"));
    Some(Partition {
        name: dir.file_name()?.to_string_lossy().replace('!', "/"),
        number,
        size_bytes: sectors(&dir.join("size")),
        start_bytes: sectors(&dir.join("start")),
        readonly: text(&dir.join("ro")) == "1",
        holders: names(&dir.join("holders")),
        label: property("PARTNAME"),
        uuid: property("PARTUUID"),
        mounted_on: mounts.of(&device_number),
        device_number,
    })
}

/// Marks the disks below the root file system.
fn mark_root(disks: &mut [Disk], mounts: &MountPoints) {
    let Some(root) = &mounts.root else { return };
    let mut below: BTreeSet<String> = BTreeSet::new();
    for disk in disks.iter() {
        if disk.device_number == *root {
            below.insert(disk.name.clone());
        }
        let of_root = disk.partitions.iter();
        below.extend(
            of_root
                .filter(|partition| partition.device_number == *root)
                .map(|partition| partition.name.clone()),
        );
    }
    // Devices may be stacked; each step goes one layer down.
    loop {
        let lower: Vec<String> = disks
            .iter()
            .filter(|disk| below.contains(&disk.name))
            .flat_map(|disk| disk.slaves.clone())
            .filter(|name| !below.contains(name))
            .collect();
        if lower.is_empty() {
            break;
        }
        below.extend(lower);
    }
    for disk in disks {
        let mut partitions = disk.partitions.iter();
        disk.holds_root =
            below.contains(&disk.name) || partitions.any(|one| below.contains(&one.name));
    }
}

fn media(name: &str, kind: Kind, rotational: bool) -> Media {
    match kind {
        Kind::Rom => Media::Optical,
        Kind::Disk if name.starts_with("nvme") => Media::Nvme,
        Kind::Disk if name.starts_with("mmcblk") => Media::SdCard,
        Kind::Disk if rotational => Media::Rotating,
        Kind::Disk => Media::SolidState,
        _ => Media::Unknown,
    }
}

/// Finds the transport in the path of the device: `/sys/devices/pci0000:00/…/ata1/…`.
fn transport(path: &str) -> &'static str {
    let words: Vec<&str> = path.split('/').collect();
    let has = |prefix: &str| {
        words.iter().any(|word| {
            word.strip_prefix(prefix)
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    // The more specific ones first: a USB disk is a SCSI disk too.
    let known = [
        ("usb", "usb"),
        ("nvme", "nvme"),
        ("mmc", "mmc"),
        ("session", "iscsi"),
        ("rport-", "fc"),
        ("end_device-", "sas"),
        ("ata", "sata"),
        ("vbd-", "xen"),
        ("virtio", "virtio"),
        ("host", "scsi"),
    ];
    known
        .into_iter()
        .find(|(prefix, _)| has(prefix))
        .map_or("", |(_, name)| name)
}

/// Reads the serial number: a file of virtio and NVMe, a data page of SCSI.
fn serial(dir: &Path) -> String {
    for file in ["serial", "device/serial"] {
        let serial = text(&dir.join(file));
        if !serial.is_empty() {
            return serial;
        }
    }
    let page = bytes(&dir.join("device/vpd_pg80"));
    let serial = page.get(VPD_HEADER_BYTES..).unwrap_or_default();
    clean(serial)
}

/// Sorts `sda10` after `sda9`.
fn natural(name: &str) -> (String, u64) {
    let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name[letters.len()..].parse().unwrap_or(0);
    (letters.to_owned(), number)
}

fn sectors(file: &Path) -> u64 {
    let sectors: u64 = text(file).parse().unwrap_or(0);
    sectors.saturating_mul(SECTOR_BYTES)
}

fn number(file: &Path) -> u32 {
    text(file).parse().unwrap_or(0)
}

/// Reads a small file without surrounding white space; empty if there is none.
fn text(file: &Path) -> String {
    clean(&bytes(file))
}

fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let blank = |c: char| c.is_whitespace() || c == '\0';
    text.trim_matches(blank).to_owned()
}

fn bytes(file: &Path) -> Vec<u8> {
    let mut content = Vec::new();
    if let Ok(file) = fs::File::open(file) {
        // A device that is gone has no content.
        let _ = file.take(MAX_FILE_BYTES).read_to_end(&mut content);
    }
    content
}

fn link(path: &Path) -> String {
    let target: Option<PathBuf> = fs::canonicalize(path).ok();
    target.map_or_else(String::new, |target| target.display().to_string())
}

fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut names: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().replace('!', "/")))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_disk_below_the_root_file_system_is_marked_through_all_layers() {
        let dir = tempfile::tempdir().unwrap();
        let sys = dir.path();
        for (file, text) in [
            ("block/sda/size", "2048\n"),
            ("block/sda/dev", "8:0\n"),
            ("block/sda/queue/rotational", "1\n"),
            ("block/sda/device/model", "QEMU HARDDISK   \n"),
            ("block/sda/device/vpd_pg80", "\0\u{1}\0\u{4}QM01\0"),
            ("block/sda/sda2/partition", "2\n"),
            ("block/sda/sda2/size", "1024\n"),
            ("block/sda/sda2/start", "8\n"),
            ("block/sda/sda2/dev", "8:2\n"),
            ("block/sda/sda2/uevent", "PARTN=2\nPARTNAME=my data\n"),
            ("block/sda/sda10/partition", "10\n"),
            ("block/sdb/size", "2048\n"),
            ("block/sdb/dev", "8:16\n"),
            ("block/dm-0/size", "1024\n"),
            ("block/dm-0/dev", "253:0\n"),
            ("block/dm-0/dm/name", "vg-root\n"),
            ("block/dm-0/slaves/sda2", ""),
            ("block/loop0/size", "0\n"),
        ] {
            write(sys, file, text);
        }
        let mut mounts = MountPoints {
            root: Some("253:0".to_owned()),
            ..MountPoints::default()
        };
        let at = vec!["/".to_owned()];
        mounts.by_device.insert("253:0".to_owned(), at.clone());
        let found = disks_in(sys, &mounts).unwrap();
        let names: Vec<_> = found.iter().map(|disk| disk.name.as_str()).collect();
        assert_eq!(names, ["dm-0", "sda", "sdb"]);
        let root: Vec<_> = found.iter().map(|disk| disk.holds_root).collect();
        assert_eq!(root, [true, true, false]);
        assert_eq!(found[0].mounted_on, at);
        assert_eq!(found[0].backing, "vg-root");
        let sda = &found[1];
        assert_eq!((sda.size_bytes, sda.media), (1 << 20, Media::Rotating));
        assert_eq!(
            (sda.model.as_str(), sda.serial.as_str()),
            ("QEMU HARDDISK", "QM01")
        );
        let numbers: Vec<_> = sda.partitions.iter().map(|one| one.number).collect();
        assert_eq!(numbers, [2, 10]);
        assert_eq!(sda.partitions[0].label, "my data");
        assert_eq!(sda.partitions[0].start_bytes, 4096);
    }

    #[test]
    fn transports_are_found_in_the_path_of_the_device() {
        for (path, wanted) in [
            (
                "/sys/devices/pci0000:00/0000:00:04.0/virtio2/block/vda",
                "virtio",
            ),
            (
                "/sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/sda",
                "sata",
            ),
            (
                "/sys/devices/pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host6/block/sdb",
                "usb",
            ),
            (
                "/sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1",
                "nvme",
            ),
            ("/sys/devices/virtual/block/loop0", ""),
        ] {
            assert_eq!(transport(path), wanted, "{path}");
        }
    }

    #[test]
    fn kinds_are_told_by_their_names() {
        for (name, kind) in [
            ("loop0", "loop"),
            ("dm-3", "dm"),
            ("md127", "md"),
            ("md_d0", "md"),
            ("sr0", "rom"),
            ("sda", "disk"),
            ("nvme0n1", "disk"),
            ("ram1", "ram"),
            ("rbd0", "rbd"),
        ] {
            assert_eq!(Kind::of(name).name(), kind, "{name}");
        }
    }

    #[test]
    fn the_disks_of_this_machine_are_read() {
        disks().unwrap();
    }
}
