//! Disk I/O limits of a cell.
//!
//! cgroup v1 throttles reads and direct writes only; buffered writes are throttled by cgroup v2
//! alone.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{BadLimit, Device};

/// Maximum rates per second; an unset field is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoRates {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_operations: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_operations: Option<u64>,
}

/// The limits of one disk, with at least one set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedIoLimit")]
pub struct IoLimit {
    device: Device,
    #[serde(flatten)]
    rates: IoRates,
}

/// The limits of several disks, each listed once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<IoLimit>")]
pub struct IoLimits(Vec<IoLimit>);

impl IoLimit {
    pub fn new(device: Device, rates: IoRates) -> Result<Self, BadLimit> {
        let operations = [rates.read_operations, rates.write_operations];
        let mut given = [rates.read_bytes, rates.write_bytes]
            .into_iter()
            .chain(operations)
            .flatten()
            .peekable();
        if given.peek().is_none() {
            return Err(BadLimit::EmptyIo { device });
        }
        // 0 means unlimited in cgroup v1, and is refused by v2.
        if given.any(|rate| rate == 0) {
            return Err(BadLimit::NoIo { device });
        }
        // The kernel truncates larger values to 32 bits silently.
        let max = u64::from(u32::MAX);
        match operations.into_iter().flatten().find(|rate| *rate > max) {
            Some(operations) => Err(BadLimit::ManyOperations { device, operations }),
            None => Ok(Self { device, rates }),
        }
    }

    pub fn device(&self) -> Device {
        self.device
    }

    pub fn rates(&self) -> &IoRates {
        &self.rates
    }
}

impl IoLimits {
    pub fn new(limits: Vec<IoLimit>) -> Result<Self, BadLimit> {
        let mut seen = BTreeSet::new();
        match limits.iter().find(|limit| !seen.insert(limit.device)) {
            Some(IoLimit { device, .. }) => Err(BadLimit::DeviceTwice { device: *device }),
            None => Ok(Self(limits)),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, IoLimit> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a IoLimits {
    type Item = &'a IoLimit;
    type IntoIter = std::slice::Iter<'a, IoLimit>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The serialized form of [`IoLimit`], before validation.
#[derive(Deserialize)]
struct UncheckedIoLimit {
    device: Device,
    #[serde(flatten)]
    rates: IoRates,
}

impl TryFrom<UncheckedIoLimit> for IoLimit {
    type Error = BadLimit;

    fn try_from(unchecked: UncheckedIoLimit) -> Result<Self, BadLimit> {
        Self::new(unchecked.device, unchecked.rates)
    }
}

impl TryFrom<Vec<IoLimit>> for IoLimits {
    type Error = BadLimit;

    fn try_from(limits: Vec<IoLimit>) -> Result<Self, BadLimit> {
        Self::new(limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Device {
        Device::new(8, 0).unwrap()
    }

    #[test]
    fn a_limit_the_kernel_would_misread_is_refused() {
        let device = disk();
        let none = IoLimit::new(device, IoRates::default());
        assert_eq!(none, Err(BadLimit::EmptyIo { device }));
        let zero = IoRates {
            write_bytes: Some(0),
            read_bytes: Some(5),
            ..IoRates::default()
        };
        assert_eq!(IoLimit::new(device, zero), Err(BadLimit::NoIo { device }));
        let operations = u64::from(u32::MAX) + 1;
        let many = IoRates {
            write_operations: Some(operations),
            ..IoRates::default()
        };
        assert_eq!(
            IoLimit::new(device, many),
            Err(BadLimit::ManyOperations { device, operations })
        );
        let most = IoRates {
            read_bytes: Some(u64::MAX),
            read_operations: Some(u64::from(u32::MAX)),
            ..IoRates::default()
        };
        assert!(IoLimit::new(device, most).is_ok());
    }

    #[test]
    fn a_disk_listed_twice_is_refused() {
        let rates = IoRates {
            read_bytes: Some(1),
            ..IoRates::default()
        };
        let limit = IoLimit::new(disk(), rates).unwrap();
        let twice = IoLimits::new(vec![limit, limit]);
        assert_eq!(twice, Err(BadLimit::DeviceTwice { device: disk() }));
    }
}
