//! Rates per second from monotonic counters, and their recent history.
//!
//! A rate is never negative and never infinite: a counter that decreased belongs to a machine that
//! rebooted, and two samples of one moment have no interval. Neither has a rate.

use std::collections::VecDeque;
use std::time::Duration;

use mainstay_api::machine::CpuStat;

/// Returns the growth of a counter per second.
pub fn per_second(earlier: u64, later: u64, elapsed: Duration) -> Option<f64> {
    let grown = later.checked_sub(earlier)?;
    finite(grown as f64 / elapsed.as_secs_f64())
}

/// Returns the growth of a counter of seconds per second.
pub fn seconds_per_second(earlier: f64, later: f64, elapsed: Duration) -> Option<f64> {
    let grown = later - earlier;
    finite(grown / elapsed.as_secs_f64()).filter(|rate| *rate >= 0.0)
}

/// Returns `part` of `whole` in percent, clamped to 0–100.
pub fn percent_of(part: f64, whole: f64) -> Option<f64> {
    finite(part / whole * 100.0).map(|percent| percent.clamp(0.0, 100.0))
}

fn finite(number: f64) -> Option<f64> {
    number.is_finite().then_some(number)
}

/// CPU time between two samples, in percent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuUsage {
    pub busy: f64,
    pub user: f64,
    pub system: f64,
    pub iowait: f64,
    pub steal: f64,
}

impl CpuUsage {
    /// Returns the usage between two samples; `None` after a reboot. The kernel's idle and iowait
    /// counters may decrease a little, so only a decrease of the sum is a reboot.
    pub fn between(earlier: &CpuStat, later: &CpuStat) -> Option<Self> {
        let grown = |of: fn(&CpuStat) -> f64| (of(later) - of(earlier)).max(0.0);
        let user = grown(|cpu| cpu.user) + grown(|cpu| cpu.nice);
        let system = grown(|cpu| cpu.system) + grown(|cpu| cpu.irq) + grown(|cpu| cpu.soft_irq);
        let iowait = grown(|cpu| cpu.iowait);
        let steal = grown(|cpu| cpu.steal);
        let whole = user + system + iowait + steal + grown(|cpu| cpu.idle);
        if sum(later) < sum(earlier) {
            return None;
        }
        Some(Self {
            busy: percent_of(user + system + steal, whole)?,
            user: percent_of(user, whole)?,
            system: percent_of(system, whole)?,
            iowait: percent_of(iowait, whole)?,
            steal: percent_of(steal, whole)?,
        })
    }
}

/// Returns the sum of all states; guest time is part of `user` and `nice` already.
fn sum(cpu: &CpuStat) -> f64 {
    cpu.user + cpu.nice + cpu.system + cpu.idle + cpu.iowait + cpu.irq + cpu.soft_irq + cpu.steal
}

/// The latest values of a series, oldest first.
#[derive(Debug, Clone, Default)]
pub struct History {
    points: VecDeque<f64>,
}

impl History {
    /// The width of a wide terminal.
    pub const MAX_POINTS: usize = 240;

    pub fn push(&mut self, value: f64) {
        if self.points.len() == Self::MAX_POINTS {
            self.points.pop_front();
        }
        self.points.push_back(value);
    }

    /// Returns the latest `count` values, newest first.
    pub fn newest(&self, count: usize) -> impl Iterator<Item = f64> {
        self.points.iter().rev().take(count).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_counter_that_decreases_or_has_no_interval_has_no_rate() {
        assert_eq!(per_second(10, 30, 2 * SECOND), Some(10.0));
        assert_eq!(per_second(30, 10, SECOND), None);
        assert_eq!(per_second(10, 30, Duration::ZERO), None);
        assert_eq!(per_second(10, 10, Duration::ZERO), None);
        assert_eq!(seconds_per_second(2.0, 1.0, SECOND), None);
        assert_eq!(seconds_per_second(1.0, f64::NAN, SECOND), None);
    }

    #[test]
    fn cpu_time_is_split_by_state() {
        let earlier = CpuStat::default();
        let later = CpuStat {
            user: 2.0,
            nice: 1.0,
            system: 1.0,
            idle: 5.0,
            iowait: 1.0,
            ..earlier
        };
        let usage = CpuUsage::between(&earlier, &later).unwrap();
        assert_eq!((usage.busy, usage.user), (40.0, 30.0));
        assert_eq!((usage.system, usage.iowait), (10.0, 10.0));
        assert_eq!(CpuUsage::between(&later, &earlier), None, "it restarted");
        assert_eq!(CpuUsage::between(&later, &later), None, "no time passed");
    }

    #[test]
    fn a_history_keeps_the_latest_values() {
        let mut history = History::default();
        for point in 0..History::MAX_POINTS + 10 {
            history.push(point as f64);
        }
        let last = (History::MAX_POINTS + 9) as f64;
        assert_eq!(history.newest(2).collect::<Vec<_>>(), [last, last - 1.0]);
        assert_eq!(history.newest(usize::MAX).count(), History::MAX_POINTS);
    }

    proptest! {
        #[test]
        fn rates_are_never_negative_or_infinite(
            counters in any::<(u64, u64)>(),
            times in any::<(f64, f64)>(),
            nanos in any::<u64>(),
        ) {
            let elapsed = Duration::from_nanos(nanos);
            let sane = |rate: Option<f64>| rate.is_none_or(|rate| rate.is_finite() && rate >= 0.0);
            prop_assert!(sane(per_second(counters.0, counters.1, elapsed)));
            prop_assert!(sane(seconds_per_second(times.0, times.1, elapsed)));
        }

        #[test]
        fn cpu_usage_is_a_percentage(
            earlier in any::<[f64; 8]>(),
            later in any::<[f64; 8]>(),
        ) {
            let stat = |[user, nice, system, idle, iowait, irq, soft_irq, steal]: [f64; 8]| CpuStat {
                user, nice, system, idle, iowait, irq, soft_irq, steal, guest: 0.0, guest_nice: 0.0,
            };
            if let Some(usage) = CpuUsage::between(&stat(earlier), &stat(later)) {
                for percent in [usage.busy, usage.user, usage.system, usage.iowait, usage.steal] {
                    prop_assert!((0.0..=100.0).contains(&percent));
                }
            }
        }
    }
}
