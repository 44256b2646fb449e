//! Rates of disks and network devices, and usage of file systems.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use mainstay_api::machine::{DiskStat, DiskStats, MountStat, Mounts, NetDev, NetworkDeviceStats};

use mainstay_client::file_systems::{is_hidden, used};

use crate::rates::{History, per_second, percent_of};

const SECTOR_BYTES: u64 = 512;

/// Bytes per second in both directions: read and written, or received and sent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Traffic {
    pub inward: f64,
    pub outward: f64,
}

impl Traffic {
    fn between(earlier: (u64, u64), later: (u64, u64), elapsed: Duration) -> Option<Self> {
        Some(Self {
            inward: per_second(earlier.0, later.0, elapsed)?,
            outward: per_second(earlier.1, later.1, elapsed)?,
        })
    }

    fn sum(all: impl Iterator<Item = Option<Self>>) -> Option<Self> {
        all.flatten().reduce(|sum, one| Self {
            inward: sum.inward + one.inward,
            outward: sum.outward + one.outward,
        })
    }
}

#[derive(Debug)]
pub struct Disk {
    pub name: String,
    pub traffic: Option<Traffic>,
    /// Utilization in percent.
    pub busy: Option<f64>,
}

#[derive(Debug)]
pub struct Disks {
    /// Disks with any I/O since boot, without partitions.
    pub devices: Vec<Disk>,
    pub total: Option<Traffic>,
    /// Reads and writes together.
    pub history: History,
    at: Duration,
    sample: HashMap<String, DiskStat>,
}

impl Disks {
    pub fn update(earlier: Option<Self>, at: Duration, message: DiskStats) -> Self {
        let (before, elapsed, mut history) = match earlier {
            Some(disks) => (disks.sample, at.saturating_sub(disks.at), disks.history),
            None => (HashMap::new(), Duration::ZERO, History::default()),
        };
        let names: HashSet<&str> = message.devices.iter().map(|disk| &*disk.name).collect();
        let devices: Vec<Disk> = message
            .devices
            .iter()
            .filter(|disk| disk.read_completed > 0 || disk.write_completed > 0)
            .filter(|disk| !is_partition(&disk.name, &names))
            .map(|disk| {
                let before = before.get(&disk.name);
                let bytes = |disk: &DiskStat| {
                    (
                        disk.read_sectors.saturating_mul(SECTOR_BYTES),
                        disk.write_sectors.saturating_mul(SECTOR_BYTES),
                    )
                };
                let busy = |before: &DiskStat| {
                    let busy_ms = per_second(before.io_time_ms, disk.io_time_ms, elapsed)?;
                    percent_of(busy_ms, 1000.0)
                };
                Disk {
                    name: disk.name.clone(),
                    traffic: before
                        .and_then(|before| Traffic::between(bytes(before), bytes(disk), elapsed)),
                    busy: before.and_then(busy),
                }
            })
            .collect();
        let total = Traffic::sum(devices.iter().map(|disk| disk.traffic));
        if let Some(total) = total {
            history.push(total.inward + total.outward);
        }
        let sample = message.devices.into_iter();
        Self {
            devices,
            total,
            history,
            at,
            sample: sample.map(|disk| (disk.name.clone(), disk)).collect(),
        }
    }
}

/// Returns `true` for a partition (`sda1`, `nvme0n1p2`), whose I/O the whole disk counts too.
fn is_partition(name: &str, names: &HashSet<&str>) -> bool {
    let whole = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if whole.len() == name.len() {
        return false;
    }
    names.contains(whole)
        || whole.strip_suffix('p').is_some_and(|whole| {
            whole.ends_with(|c: char| c.is_ascii_digit()) && names.contains(whole)
        })
}

#[derive(Debug)]
pub struct NetworkDevice {
    pub name: String,
    pub traffic: Option<Traffic>,
}

#[derive(Debug)]
pub struct Network {
    /// Devices with any traffic since boot, the loopback device last.
    pub devices: Vec<NetworkDevice>,
    /// Traffic of physical devices.
    pub total: Option<Traffic>,
    pub received: History,
    pub sent: History,
    at: Duration,
    sample: HashMap<String, NetDev>,
}

impl Network {
    pub fn update(earlier: Option<Self>, at: Duration, message: NetworkDeviceStats) -> Self {
        let (before, elapsed, mut received, mut sent) = match earlier {
            Some(network) => (
                network.sample,
                at.saturating_sub(network.at),
                network.received,
                network.sent,
            ),
            None => Default::default(),
        };
        let mut devices: Vec<NetworkDevice> = message
            .devices
            .iter()
            .filter(|device| device.rx_bytes > 0 || device.tx_bytes > 0)
            .map(|device| {
                let bytes = |device: &NetDev| (device.rx_bytes, device.tx_bytes);
                let before = before.get(&device.name);
                NetworkDevice {
                    name: device.name.clone(),
                    traffic: before
                        .and_then(|before| Traffic::between(bytes(before), bytes(device), elapsed)),
                }
            })
            .collect();
        devices.sort_by_key(|device| device.name == "lo");
        let outside = devices.iter().filter(|device| !is_virtual(&device.name));
        let total = Traffic::sum(outside.map(|device| device.traffic));
        if let Some(total) = total {
            received.push(total.inward);
            sent.push(total.outward);
        }
        let sample = message.devices.into_iter();
        Self {
            devices,
            total,
            received,
            sent,
            at,
            sample: sample.map(|device| (device.name.clone(), device)).collect(),
        }
    }
}

/// Returns `true` for a device between the machine and its containers or itself; traffic that
/// leaves the machine is counted by another device too.
fn is_virtual(name: &str) -> bool {
    const PREFIXES: [&str; 6] = ["veth", "br-", "docker", "cni", "virbr", "tap"];
    name == "lo" || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[derive(Debug, PartialEq)]
pub struct Mount {
    pub filesystem: String,
    pub mounted_on: String,
    pub size: u64,
    pub used: u64,
    /// Free without what is reserved for root.
    pub available: u64,
}

impl Mount {
    /// Returns the share of what users can fill, as `df` does.
    pub fn percent(&self) -> f64 {
        let whole = self.used.saturating_add(self.available);
        percent_of(self.used as f64, whole as f64).unwrap_or(0.0)
    }
}

/// Returns the file systems that have a size, each once, the fullest first.
pub fn mounts(message: Mounts) -> Vec<Mount> {
    let mut seen = HashSet::new();
    let mut mounts: Vec<Mount> = message
        .stats
        .into_iter()
        .filter(|stat| !is_hidden(stat))
        .filter(|stat: &MountStat| {
            // Nodes of earlier versions do not say what is hidden.
            !stat.r#type.is_empty()
                || seen.insert((stat.filesystem.clone(), stat.size, stat.available))
        })
        .map(|stat| Mount {
            used: used(&stat),
            available: stat.available,
            size: stat.size,
            filesystem: stat.filesystem,
            mounted_on: stat.mounted_on,
        })
        .collect();
    mounts.sort_by(|a, b| b.percent().total_cmp(&a.percent()));
    mounts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_not_counted_beside_their_disk() {
        let names: HashSet<&str> = ["sda", "sda1", "nvme0n1", "nvme0n1p2", "md0", "dm-0"].into();
        let parts: Vec<&str> = ["sda", "sda1", "nvme0n1", "nvme0n1p2", "md0", "dm-0"]
            .into_iter()
            .filter(|name| is_partition(name, &names))
            .collect();
        assert_eq!(parts, ["sda1", "nvme0n1p2"]);
    }

    #[test]
    fn a_new_device_has_no_rate_and_a_removed_one_leaves_the_total() {
        let sample = |devices: &[(&str, u64)]| NetworkDeviceStats {
            devices: devices
                .iter()
                .map(|(name, bytes)| NetDev {
                    name: (*name).to_owned(),
                    rx_bytes: *bytes,
                    tx_bytes: *bytes,
                    ..NetDev::default()
                })
                .collect(),
            ..NetworkDeviceStats::default()
        };
        let second = Duration::from_secs(1);
        let first = Network::update(None, second, sample(&[("lo", 5), ("eth0", 100)]));
        assert_eq!(first.total, None);
        let next = sample(&[("lo", 905), ("eth0", 300), ("eth1", 7)]);
        let next = Network::update(Some(first), 3 * second, next);
        assert_eq!(
            next.total.unwrap().inward,
            100.0,
            "the loopback device does not count"
        );
        assert_eq!(next.devices[2].name, "lo");
        assert_eq!(next.devices[1].traffic, None);
        let last = Network::update(Some(next), 4 * second, sample(&[("eth0", 200)]));
        assert_eq!(last.total, None, "the counter of eth0 was reset");
    }

    #[test]
    fn a_file_system_is_shown_once_and_the_fullest_first() {
        let stat = |filesystem: &str, size, available, mounted_on: &str| MountStat {
            filesystem: filesystem.to_owned(),
            size,
            available,
            mounted_on: mounted_on.to_owned(),
            ..MountStat::default()
        };
        let shown = mounts(Mounts {
            metadata: None,
            stats: vec![
                stat("proc", 0, 0, "/proc"),
                stat("/dev/sda", 100, 60, "/"),
                stat("/dev/sda", 100, 60, "/bound"),
                stat("/dev/sdb", 100, 10, "/data"),
                stat("/dev/odd", 10, 90, "/odd"),
            ],
        });
        let mounted: Vec<&str> = shown.iter().map(|mount| &*mount.mounted_on).collect();
        assert_eq!(mounted, ["/data", "/", "/odd"]);
        assert_eq!(shown[2].percent(), 0.0);
    }

    #[test]
    fn reserved_space_is_not_used_and_hidden_mounts_are_not_shown() {
        let disk = MountStat {
            filesystem: "/dev/sda".to_owned(),
            size: 100,
            free: 50,
            available: 30,
            mounted_on: "/".to_owned(),
            r#type: "ext4".to_owned(),
            ..MountStat::default()
        };
        let bound = MountStat {
            mounted_on: "/bound".to_owned(),
            hidden: true,
            ..disk.clone()
        };
        let shown = mounts(Mounts {
            metadata: None,
            stats: vec![bound, disk],
        });
        assert_eq!(shown.len(), 1);
        assert_eq!((shown[0].used, shown[0].percent()), (50, 62.5));
    }
}
