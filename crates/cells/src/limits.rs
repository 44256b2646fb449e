//! Resource limits of a cell, validated before anything is created.
//!
//! Limits are part of a cell's record, as JSON: field names are stable, unknown fields are ignored,
//! and a value that a request could not contain is refused on reading too.

mod device;
mod io;

use serde::{Deserialize, Serialize};

pub use device::Device;
pub use io::{IoLimit, IoLimits, IoRates};

/// Requested limits; an unset field is unlimited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_shares: Option<CpuShares>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_max: Option<CpuMax>,
    /// CPUs, as `0-3,7`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuList>,
    /// NUMA nodes, as `0-3,7`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mems: Option<CpuList>,
    #[serde(skip_serializing_if = "MemoryLimits::is_empty")]
    pub memory: MemoryLimits,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    #[serde(skip_serializing_if = "IoLimits::is_empty")]
    pub io: IoLimits,
}

/// Relative CPU weight in the units of cgroup v1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64")]
pub struct CpuShares(u64);

/// CPU bandwidth: `quota` microseconds of CPU time in each `period`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedCpuMax")]
pub struct CpuMax {
    pub quota: u64,
    pub period: u64,
    /// Whether the request named the period. Missing in records of before this field.
    #[serde(skip_serializing_if = "is_default_period")]
    period_requested: bool,
}

/// Memory limits in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryLimits {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}

/// A list of CPUs or NUMA nodes in the kernel's format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct CpuList(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLimit {
    #[error("invalid CPU shares {0}; use 2 to 262144, or 0 for the default")]
    Shares(u64),
    #[error("invalid CPU weight {0}; use 1 to 10000")]
    Weight(u64),
    #[error("invalid CPU period {0}; use 1000 to 1000000 microseconds")]
    Period(u64),
    #[error("a CPU period without a CPU quota has no effect; set both, or neither")]
    PeriodWithoutQuota,
    #[error("invalid CPU quota {0}; use 1000 to 17592186044415 microseconds")]
    Quota(i64),
    #[error("invalid list of CPUs or NUMA nodes {0:?}; write 0-3,7")]
    List(String),
    #[error("a memory limit cannot be negative")]
    NegativeMemory,
    #[error("a memory limit (memory.high, memory.max) of 0 bytes leaves no memory; leave it out")]
    NoMemory,
    #[error(
        "{shown:?} is not a block device; write its path, as /dev/sda, or its device number, as 8:0"
    )]
    Device { shown: String },
    #[error("block device {device} does not exist; /proc/partitions lists those of this machine")]
    NoDevice { device: Device },
    #[error("cannot find the disk of {shown:?}: {reason}")]
    UnknownDevice { shown: String, reason: String },
    #[error("a limit of device {device} is 0; leave out a limit that is not wanted")]
    NoIo { device: Device },
    #[error("device {device} has no limit; give at least one, or leave the device out")]
    EmptyIo { device: Device },
    #[error(
        "{operations} operations per second on device {device} exceed the maximum of 4294967295"
    )]
    ManyOperations { device: Device, operations: u64 },
    #[error(
        "device {device} is given twice; a partition counts as its disk, which is limited as a whole"
    )]
    DeviceTwice { device: Device },
}

impl Limits {
    /// Returns whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl CpuShares {
    pub const DEFAULT: Self = Self(1024);

    /// Validates shares; 0 is the default, as in cgroup v1.
    pub fn new(shares: u64) -> Result<Option<Self>, BadLimit> {
        match shares {
            0 => Ok(None),
            2..=262_144 => Ok(Some(Self(shares))),
            _ => Err(BadLimit::Shares(shares)),
        }
    }

    /// Converts a cgroup v2 weight to the smallest shares with exactly that weight, by the inverse
    /// of the formula that runc and crun use.
    pub fn from_weight(weight: u64) -> Result<Self, BadLimit> {
        match weight {
            1..=10_000 => Ok(Self(2 + ((weight - 1) * 262_142).div_ceil(9_999))),
            _ => Err(BadLimit::Weight(weight)),
        }
    }

    pub fn shares(self) -> u64 {
        self.0
    }

    /// Converts to a cgroup v2 weight: 2 shares are weight 1, 262144 are 10000.
    pub fn weight(self) -> u64 {
        1 + (self.0 - 2) * 9_999 / 262_142
    }
}

impl CpuMax {
    const DEFAULT_PERIOD: u64 = 100_000;
    /// The kernel's `max_cfs_runtime`.
    const MAX_QUOTA: u64 = (1 << 44) - 1;

    /// Validates quota and period; a quota that is not positive means unlimited.
    pub fn new(quota: i64, period: Option<u64>) -> Result<Option<Self>, BadLimit> {
        match u64::try_from(quota) {
            Err(_) | Ok(0) => match period {
                None => Ok(None),
                Some(_) => Err(BadLimit::PeriodWithoutQuota),
            },
            Ok(_) => Self::limited(quota, period).map(Some),
        }
    }

    /// Validates quota and period; there is no value for unlimited.
    pub fn limited(quota: i64, period: Option<u64>) -> Result<Self, BadLimit> {
        let period_requested = period.is_some();
        let period = period.unwrap_or(Self::DEFAULT_PERIOD);
        if !(1_000..=1_000_000).contains(&period) {
            return Err(BadLimit::Period(period));
        }
        match u64::try_from(quota) {
            Ok(bounded @ 1_000..=Self::MAX_QUOTA) => Ok(Self {
                quota: bounded,
                period,
                period_requested,
            }),
            _ => Err(BadLimit::Quota(quota)),
        }
    }

    /// The period as requested; `None` if it is the default.
    pub fn requested_period(self) -> Option<u64> {
        (self.period_requested || self.period != Self::DEFAULT_PERIOD).then_some(self.period)
    }
}

/// The serialized form of [`CpuMax`], before validation.
#[derive(Deserialize)]
struct UncheckedCpuMax {
    quota: u64,
    period: u64,
    #[serde(default)]
    period_requested: bool,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_default_period(requested: &bool) -> bool {
    !requested
}

impl TryFrom<UncheckedCpuMax> for CpuMax {
    type Error = BadLimit;

    fn try_from(unchecked: UncheckedCpuMax) -> Result<Self, BadLimit> {
        let quota = i64::try_from(unchecked.quota).unwrap_or(i64::MAX);
        let checked = Self::limited(quota, Some(unchecked.period))?;
        Ok(Self {
            period_requested: unchecked.period_requested,
            ..checked
        })
    }
}

impl TryFrom<u64> for CpuShares {
    type Error = BadLimit;

    fn try_from(shares: u64) -> Result<Self, BadLimit> {
        Self::new(shares)?.ok_or(BadLimit::Shares(shares))
    }
}

impl TryFrom<String> for CpuList {
    type Error = BadLimit;

    fn try_from(text: String) -> Result<Self, BadLimit> {
        Self::new(&text)
    }
}

impl MemoryLimits {
    /// Refuses a limit that leaves no memory.
    pub fn check(self) -> Result<Self, BadLimit> {
        if self.high == Some(0) || self.max == Some(0) {
            return Err(BadLimit::NoMemory);
        }
        Ok(self)
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl CpuList {
    pub fn new(text: &str) -> Result<Self, BadLimit> {
        const MAX_LIST_BYTES: usize = 1024;
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| text.parse::<u16>().ok()).flatten()
        };
        let range = |text: &str| match text.split_once('-') {
            None => number(text).is_some(),
            Some((first, last)) => match (number(first), number(last)) {
                (Some(first), Some(last)) => first <= last,
                _ => false,
            },
        };
        if text.len() <= MAX_LIST_BYTES && text.split(',').all(range) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadLimit::List(shown(text)))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Truncates a text for an error message.
fn shown(text: &str) -> String {
    const SHOWN_CHARS: usize = 80;
    text.chars().take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_shares_out_of_range_are_refused() {
        assert_eq!(CpuShares::new(0), Ok(None));
        for bad in [1, 262_145, u64::MAX] {
            assert_eq!(CpuShares::new(bad), Err(BadLimit::Shares(bad)));
        }
    }

    #[test]
    fn cpu_shares_convert_to_v2_weights() {
        for (shares, weight) in [(2, 1), (1024, 39), (2048, 79), (262_144, 10_000)] {
            let shares = CpuShares::new(shares).unwrap().unwrap();
            assert_eq!(shares.weight(), weight);
        }
    }

    #[test]
    fn cpu_quota_and_period_out_of_range_are_refused() {
        let max = CpuMax::new(50_000, None).unwrap().unwrap();
        assert_eq!((max.quota, max.period), (50_000, 100_000));
        assert_eq!(CpuMax::new(-1, None), Ok(None));
        assert_eq!(CpuMax::new(999, None), Err(BadLimit::Quota(999)));
        assert_eq!(CpuMax::new(i64::MAX, None), Err(BadLimit::Quota(i64::MAX)));
        assert_eq!(CpuMax::limited(0, None), Err(BadLimit::Quota(0)));
        assert_eq!(CpuMax::limited(-1, None), Err(BadLimit::Quota(-1)));
        for quota in [0, -1] {
            let lone = CpuMax::new(quota, Some(100_000));
            assert_eq!(lone, Err(BadLimit::PeriodWithoutQuota));
        }
        assert_eq!(CpuMax::new(5_000, Some(10)), Err(BadLimit::Period(10)));
    }

    /// The default period, named or not, has the same effect, but is not the same request.
    #[test]
    fn a_record_keeps_whether_the_cpu_period_was_requested() {
        for (period, shown) in [(None, None), (Some(100_000), Some(100_000))] {
            let max = CpuMax::limited(50_000, period).unwrap();
            let kept = serde_json::to_string(&max).unwrap();
            let read: CpuMax = serde_json::from_str(&kept).unwrap();
            assert_eq!(read.requested_period(), shown, "{kept}");
        }
        let earlier = r#"{"quota":50000,"period":20000}"#;
        let earlier: CpuMax = serde_json::from_str(earlier).unwrap();
        assert_eq!(earlier.requested_period(), Some(20_000));
    }

    #[test]
    fn cpu_lists_are_numbers_and_ranges() {
        for good in ["0", "0-3", "0-3,7,9-9"] {
            assert_eq!(CpuList::new(good).unwrap().as_str(), good);
        }
        for bad in ["", ",", "0,", "3-0", "-1", "a", "0 1", "0\n", "+1", "99999"] {
            assert!(CpuList::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn limits_are_serialized_under_stable_names() {
        let device = Device::new(8, 0).unwrap();
        let rates = IoRates {
            read_bytes: Some(1 << 20),
            write_operations: Some(50),
            ..IoRates::default()
        };
        let limits = Limits {
            cpu_shares: CpuShares::new(512).unwrap(),
            cpu_max: CpuMax::new(50_000, None).unwrap(),
            cpus: Some(CpuList::new("0-1").unwrap()),
            mems: Some(CpuList::new("0").unwrap()),
            memory: MemoryLimits {
                max: Some(1 << 30),
                ..MemoryLimits::default()
            },
            pids: Some(9),
            io: IoLimits::new(vec![IoLimit::new(device, rates).unwrap()]).unwrap(),
        };
        let kept = r#"{"cpu_shares":512,"cpu_max":{"quota":50000,"period":100000},"cpus":"0-1","#
            .to_owned()
            + r#""mems":"0","memory":{"max":1073741824},"pids":9,"#
            + r#""io":[{"device":"8:0","read_bytes":1048576,"write_operations":50}]}"#;
        assert_eq!(serde_json::to_string(&limits).unwrap(), kept);
        assert_eq!(serde_json::from_str::<Limits>(&kept).unwrap(), limits);

        let none = serde_json::to_string(&Limits::default()).unwrap();
        assert_eq!(none, "{}");
        let later: Limits = serde_json::from_str(r#"{"pids":3,"of_a_later_version":1}"#).unwrap();
        assert_eq!(later.pids, Some(3));
    }

    #[test]
    fn an_invalid_limit_in_a_record_is_refused() {
        for bad in [
            r#"{"cpu_shares":0}"#,
            r#"{"cpu_shares":1}"#,
            r#"{"cpu_shares":-2}"#,
            r#"{"cpu_max":{"quota":0,"period":100000}}"#,
            r#"{"cpu_max":{"quota":999,"period":100000}}"#,
            r#"{"cpu_max":{"quota":5000,"period":1}}"#,
            r#"{"cpu_max":{"quota":5000}}"#,
            r#"{"cpus":"3-0"}"#,
            r#"{"mems":"0\n1"}"#,
            r#"{"memory":{"max":-1}}"#,
            r#"{"io":[{"device":"8:0"}]}"#,
            r#"{"io":[{"device":"8:0","read_bytes":0}]}"#,
            r#"{"io":[{"device":"8:0","read_operations":4294967296}]}"#,
            r#"{"io":[{"device":"8","read_bytes":1}]}"#,
            r#"{"io":[{"device":"/dev/sda","read_bytes":1}]}"#,
            r#"{"io":[{"device":"8:0 rbps=1","read_bytes":1}]}"#,
            r#"{"io":[{"device":"8:0","read_bytes":1},{"device":"8:0","write_bytes":1}]}"#,
        ] {
            assert!(serde_json::from_str::<Limits>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_weight_survives_a_round_trip_through_shares() {
        for weight in 1..=10_000 {
            let shares = CpuShares::from_weight(weight).unwrap();
            assert_eq!(shares.weight(), weight);
            assert_eq!(CpuShares::new(shares.shares()), Ok(Some(shares)));
        }
        for bad in [0, 10_001, u64::MAX] {
            assert_eq!(CpuShares::from_weight(bad), Err(BadLimit::Weight(bad)));
        }
    }
}
