//! Block devices that I/O limits apply to: whole disks, by device number.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::str::FromStr;

use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};

use super::{BadLimit, shown};

const DEVICES: &str = "/sys/dev/block";
/// The kernel's ranges of major and minor device numbers.
const MAX_MAJOR: u32 = (1 << 12) - 1;
const MAX_MINOR: u32 = (1 << 20) - 1;

/// A block device number. The device may have been removed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Device {
    major: u32,
    minor: u32,
}

impl Device {
    pub fn new(major: u32, minor: u32) -> Option<Self> {
        (major <= MAX_MAJOR && minor <= MAX_MINOR).then_some(Self { major, minor })
    }

    /// Finds the disk that `/dev/sda` or `8:0` names. A partition resolves to its disk, because the
    /// kernel limits whole disks only.
    pub fn find(text: &str) -> Result<Self, BadLimit> {
        Self::find_in(Path::new(DEVICES), text)
    }

    fn find_in(devices: &Path, text: &str) -> Result<Self, BadLimit> {
        let named = if text.starts_with('/') {
            Self::at(text)?
        } else {
            text.parse()?
        };
        named.disk(devices)
    }

    fn at(path: &str) -> Result<Self, BadLimit> {
        let file = fs::metadata(path).map_err(|error| BadLimit::UnknownDevice {
            shown: shown(path),
            reason: error.to_string(),
        })?;
        if !file.file_type().is_block_device() {
            return Err(bad(path));
        }
        Self::new(major(file.rdev()), minor(file.rdev())).ok_or_else(|| bad(path))
    }

    fn disk(self, devices: &Path) -> Result<Self, BadLimit> {
        let unknown = |error: std::io::Error| BadLimit::UnknownDevice {
            shown: self.to_string(),
            reason: error.to_string(),
        };
        let own = devices.join(self.to_string());
        if !own.try_exists().map_err(unknown)? {
            return Err(BadLimit::NoDevice { device: self });
        }
        if !own.join("partition").try_exists().map_err(unknown)? {
            return Ok(self);
        }
        // The entry links to the partition's directory, which is inside that of its disk.
        let disk = fs::read_to_string(own.join("../dev")).map_err(unknown)?;
        disk.trim_end()
            .parse()
            .map_err(|_| unknown(ErrorKind::InvalidData.into()))
    }
}

impl FromStr for Device {
    type Err = BadLimit;

    /// Parses `8:0`; [`Device::find`] checks that the device exists.
    fn from_str(text: &str) -> Result<Self, BadLimit> {
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten()
        };
        text.split_once(':')
            .and_then(|(major, minor)| Self::new(number(major)?, number(minor)?))
            .ok_or_else(|| bad(text))
    }
}

impl TryFrom<String> for Device {
    type Error = BadLimit;

    fn try_from(text: String) -> Result<Self, BadLimit> {
        text.parse()
    }
}

impl From<Device> for String {
    fn from(device: Device) -> Self {
        device.to_string()
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

fn bad(text: &str) -> BadLimit {
    BadLimit::Device { shown: shown(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn an_invalid_device_number_is_refused() {
        for bad in [
            "",
            ":",
            "8",
            "8:",
            ":0",
            "8:0:0",
            "8: 0",
            "8:0\n",
            "+8:0",
            "-8:0",
            "4096:0",
            "8:1048576",
            "99999999999:0",
            "sda",
        ] {
            let error = Device::find(bad).unwrap_err();
            assert!(matches!(error, BadLimit::Device { .. }), "{bad:?}: {error}");
        }
        let last: Device = "4095:1048575".parse().unwrap();
        assert_eq!(last.to_string(), "4095:1048575");
    }

    #[test]
    fn a_file_that_is_not_a_block_device_is_refused() {
        let error = Device::find("/dev/null").unwrap_err();
        assert!(matches!(error, BadLimit::Device { .. }), "{error}");
        let error = Device::find("/dev/there/is/none").unwrap_err();
        assert!(matches!(error, BadLimit::UnknownDevice { .. }), "{error}");
        let error = Device::find("/dev/a\0b").unwrap_err();
        assert!(matches!(error, BadLimit::UnknownDevice { .. }), "{error}");
        let error = Device::find("4095:1048575").unwrap_err();
        assert!(matches!(error, BadLimit::NoDevice { .. }), "{error}");
        let huge = Device::find(&"/".repeat(1 << 20)).unwrap_err();
        assert!(huge.to_string().len() < 300);
    }

    /// Creates a disk `8:16` with a partition `8:17`, in directories as those of sysfs.
    fn disk_with_partition() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let disk = root.path().join("disk");
        let partition = disk.join("partition-1");
        fs::create_dir_all(&partition).unwrap();
        fs::write(disk.join("dev"), "8:16\n").unwrap();
        fs::write(partition.join("dev"), "8:17\n").unwrap();
        fs::write(partition.join("partition"), "1\n").unwrap();
        symlink("disk", root.path().join("8:16")).unwrap();
        symlink("disk/partition-1", root.path().join("8:17")).unwrap();
        root
    }

    #[test]
    fn a_partition_resolves_to_its_disk() {
        let devices = disk_with_partition();
        let disk = Device::new(8, 16).unwrap();
        assert_eq!(Device::find_in(devices.path(), "8:16"), Ok(disk));
        assert_eq!(Device::find_in(devices.path(), "8:17"), Ok(disk));
        let error = Device::find_in(devices.path(), "8:18").unwrap_err();
        assert!(matches!(error, BadLimit::NoDevice { .. }), "{error}");
    }

    proptest! {
        #[test]
        fn device_numbers_survive_a_round_trip(major in 0..=MAX_MAJOR, minor in 0..=MAX_MINOR) {
            let device = Device::new(major, minor).unwrap();
            prop_assert_eq!(device.to_string().parse(), Ok(device));
        }

        #[test]
        fn parsing_any_text_does_not_panic(text in ".{0,40}") {
            let _ = text.parse::<Device>();
        }
    }
}
