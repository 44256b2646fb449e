//! What a cell may use, checked before anything is made.

/// Limits as they are asked for; what is not set is not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    pub cpu_shares: Option<CpuShares>,
    pub cpu_max: Option<CpuMax>,
    /// Processors, as `0-3,7`.
    pub cpus: Option<CpuList>,
    /// Memory nodes, in the same form.
    pub mems: Option<CpuList>,
    pub memory: MemoryLimits,
    /// Processes and threads.
    pub pids: Option<u64>,
}

/// How processor time is divided when there is not enough, in the units of cgroup v1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CpuShares(u64);

/// So many microseconds of processor time in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CpuMax {
    pub quota: u64,
    pub period: u64,
}

/// Bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MemoryLimits {
    pub min: Option<u64>,
    pub low: Option<u64>,
    pub high: Option<u64>,
    pub max: Option<u64>,
}

/// Numbers and ranges of them, as the kernel writes lists of processors.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CpuList(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadLimit {
    #[error("{0} are no cpu shares; they are 2 to 262144, or 0 for the default")]
    Shares(u64),
    #[error("{0} is no cpu weight; it is 1 to 10000")]
    Weight(u64),
    #[error("a cpu period is 1000 to 1000000 microseconds, not {0}")]
    Period(u64),
    #[error("a cpu quota is at least 1000 microseconds, not {0}")]
    Quota(i64),
    #[error("{0:?} is no list of processors or memory nodes; write 0-3,7")]
    List(String),
    #[error("a limit of memory cannot be negative")]
    NegativeMemory,
}

impl CpuShares {
    pub const DEFAULT: Self = Self(1024);

    /// 0 is the default, as in cgroup v1.
    pub fn new(shares: u64) -> Result<Option<Self>, BadLimit> {
        match shares {
            0 => Ok(None),
            2..=262_144 => Ok(Some(Self(shares))),
            _ => Err(BadLimit::Shares(shares)),
        }
    }

    /// From the units of cgroup v2, by the inverse of the kernel tools' usual formula.
    pub fn from_weight(weight: u64) -> Result<Self, BadLimit> {
        match weight {
            1..=10_000 => Ok(Self((2 + (weight - 1) * 262_142 / 9_999).clamp(2, 262_144))),
            _ => Err(BadLimit::Weight(weight)),
        }
    }

    pub fn shares(self) -> u64 {
        self.0
    }

    /// In the units of cgroup v2: 2 shares are a weight of 1, 262144 are 10000.
    pub fn weight(self) -> u64 {
        1 + (self.0 - 2) * 9_999 / 262_142
    }
}

impl CpuMax {
    const PERIOD: u64 = 100_000;

    /// A quota that is not positive is no limit.
    pub fn new(quota: i64, period: Option<u64>) -> Result<Option<Self>, BadLimit> {
        let period = period.unwrap_or(Self::PERIOD);
        if !(1_000..=1_000_000).contains(&period) {
            return Err(BadLimit::Period(period));
        }
        match u64::try_from(quota) {
            Err(_) | Ok(0) => Ok(None),
            Ok(1..1_000) => Err(BadLimit::Quota(quota)),
            Ok(quota) => Ok(Some(Self { quota, period })),
        }
    }
}

impl CpuList {
    pub fn new(text: &str) -> Result<Self, BadLimit> {
        const MOST_BYTES: usize = 1024;
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
        if text.len() <= MOST_BYTES && text.split(',').all(range) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadLimit::List(text.chars().take(80).collect()))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shares_outside_their_range_are_refused() {
        assert_eq!(CpuShares::new(0), Ok(None));
        for bad in [1, 262_145, u64::MAX] {
            assert_eq!(CpuShares::new(bad), Err(BadLimit::Shares(bad)));
        }
    }

    #[test]
    fn shares_become_weights_as_everywhere_else() {
        for (shares, weight) in [(2, 1), (1024, 39), (2048, 79), (262_144, 10_000)] {
            let shares = CpuShares::new(shares).unwrap().unwrap();
            assert_eq!(shares.weight(), weight);
        }
    }

    #[test]
    fn quotas_and_periods_have_bounds() {
        let max = CpuMax::new(50_000, None).unwrap().unwrap();
        assert_eq!((max.quota, max.period), (50_000, 100_000));
        assert_eq!(CpuMax::new(-1, None), Ok(None));
        assert_eq!(CpuMax::new(999, None), Err(BadLimit::Quota(999)));
        assert_eq!(CpuMax::new(5_000, Some(10)), Err(BadLimit::Period(10)));
    }

    #[test]
    fn lists_are_numbers_and_ranges() {
        for good in ["0", "0-3", "0-3,7,9-9"] {
            assert_eq!(CpuList::new(good).unwrap().as_str(), good);
        }
        for bad in ["", ",", "0,", "3-0", "-1", "a", "0 1", "0\n", "+1", "99999"] {
            assert!(CpuList::new(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn every_weight_there_and_back_is_nearly_the_same(weight in 1..=10_000_u64) {
            let back = CpuShares::from_weight(weight).unwrap().weight();
            prop_assert!(back.abs_diff(weight) <= 1);
        }
    }
}
