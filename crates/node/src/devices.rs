//! Counters of network devices and disks: `/proc/net/dev` and `/proc/diskstats`.

use std::io;
use std::path::Path;

/// A device and its counters, in the order of the kernel's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device<const N: usize> {
    pub name: String,
    pub counters: [u64; N],
}

/// Received: bytes, packets, errors, dropped, fifo, frame, compressed, multicast; sent: bytes,
/// packets, errors, dropped, fifo, collisions, carrier, compressed.
pub type NetworkDevice = Device<16>;

/// Reads: completed, merged, sectors, ms; writes: the same; in progress, ms, weighted ms;
/// discards: completed, merged, sectors, ms.
pub type Disk = Device<15>;

pub fn network_devices() -> io::Result<Vec<NetworkDevice>> {
    Ok(parse_network(&std::fs::read_to_string(
        "/proc/self/net/dev",
    )?))
}

/// Disks and their partitions.
pub fn disks() -> io::Result<Vec<Disk>> {
    Ok(parse_disks(&std::fs::read_to_string("/proc/diskstats")?))
}

/// True for a whole disk, false for a partition or a device on top of a counted one.
pub fn is_whole_disk(disk: &Disk) -> bool {
    Path::new("/sys/block")
        .join(disk.name.replace('/', "!"))
        .exists()
}

/// Sums the counters of all devices.
pub fn total<'a, const N: usize>(devices: impl Iterator<Item = &'a Device<N>>) -> [u64; N] {
    let mut total = [0_u64; N];
    for device in devices {
        for (sum, counter) in total.iter_mut().zip(device.counters) {
            *sum = sum.wrapping_add(counter);
        }
    }
    total
}

/// Parses `name: counters…`, after two header lines.
fn parse_network(text: &str) -> Vec<NetworkDevice> {
    text.lines()
        .filter(|line| !line.contains('|'))
        .filter_map(|line| line.rsplit_once(':'))
        .map(|(name, counters)| device(name.trim(), counters.split_ascii_whitespace()))
        .collect()
}

/// Parses `major minor name counters…`.
fn parse_disks(text: &str) -> Vec<Disk> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace().skip(2);
            let name = words.next()?;
            Some(device(name, words))
        })
        .collect()
}

fn device<'a, const N: usize>(name: &str, words: impl Iterator<Item = &'a str>) -> Device<N> {
    let mut counters = [0; N];
    for (counter, word) in counters.iter_mut().zip(words) {
        *counter = word.parse().unwrap_or(0);
    }
    Device {
        name: name.to_owned(),
        counters,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn network_devices_are_parsed_without_the_header() {
        let text = "Inter-|   Receive\n face |bytes\n    lo: 10 2 0 0 0 0 0 0 30 4 0 0 0 0 0 0\nveth0@x:1 2\n";
        let devices = parse_network(text);
        assert_eq!(devices.len(), 2);
        assert_eq!(
            (
                devices[0].name.as_str(),
                devices[0].counters[0],
                devices[0].counters[8]
            ),
            ("lo", 10, 30)
        );
        assert_eq!(total(devices.iter())[0], 11);
    }

    #[test]
    fn disks_of_old_kernels_lack_the_last_counters() {
        let disks = parse_disks("   8       0 sda 1 2 3 4 5 6 7 8 9 10 11\n   8 1 sda1 1\nbad\n");
        assert_eq!(disks.len(), 2);
        assert_eq!(
            disks[0].counters,
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 0, 0, 0]
        );
    }

    #[test]
    fn this_machine_has_a_loopback_device() {
        assert!(
            network_devices()
                .unwrap()
                .iter()
                .any(|device| device.name == "lo")
        );
        disks().unwrap();
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(text in "(?s).{0,300}") {
            let _ = parse_network(&text);
            let _ = parse_disks(&text);
        }
    }
}
