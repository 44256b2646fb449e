//! What happens per second, out of counters that only grow, and how that was lately.
//!
//! A rate is never negative and never infinite: a counter that went back belongs to a machine that
//! started anew, and two samples of the same moment tell nothing. Both have no rate.

use std::collections::VecDeque;
use std::time::Duration;

use mainstay_api::machine::CpuStat;

/// How much a counter grew in a second.
pub fn per_second(earlier: u64, later: u64, elapsed: Duration) -> Option<f64> {
    let grown = later.checked_sub(earlier)?;
    finite(grown as f64 / elapsed.as_secs_f64())
}

/// How many seconds of a second went into what is counted in seconds.
pub fn seconds_per_second(earlier: f64, later: f64, elapsed: Duration) -> Option<f64> {
    let grown = later - earlier;
    finite(grown / elapsed.as_secs_f64()).filter(|rate| *rate >= 0.0)
}

/// `part` of `whole` in percent, within 0 and 100.
pub fn percent_of(part: f64, whole: f64) -> Option<f64> {
    finite(part / whole * 100.0).map(|percent| percent.clamp(0.0, 100.0))
}

fn finite(number: f64) -> Option<f64> {
    number.is_finite().then_some(number)
}

/// Where the time of a processor went between two samples, in percent of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuUse {
    pub busy: f64,
    pub user: f64,
    pub system: f64,
    pub waiting: f64,
    pub stolen: f64,
}

impl CpuUse {
    /// The kernel counts time that was idle or waited for a disk carelessly: it may go back a
    /// little. Only the whole going back is a new start.
    pub fn between(earlier: &CpuStat, later: &CpuStat) -> Option<Self> {
        let grown = |of: fn(&CpuStat) -> f64| (of(later) - of(earlier)).max(0.0);
        let user = grown(|cpu| cpu.user) + grown(|cpu| cpu.nice);
        let system = grown(|cpu| cpu.system) + grown(|cpu| cpu.irq) + grown(|cpu| cpu.soft_irq);
        let waiting = grown(|cpu| cpu.iowait);
        let stolen = grown(|cpu| cpu.steal);
        let whole = user + system + waiting + stolen + grown(|cpu| cpu.idle);
        if sum(later) < sum(earlier) {
            return None;
        }
        Some(Self {
            busy: percent_of(user + system + stolen, whole)?,
            user: percent_of(user, whole)?,
            system: percent_of(system, whole)?,
            waiting: percent_of(waiting, whole)?,
            stolen: percent_of(stolen, whole)?,
        })
    }
}

/// Guests are part of `user` and `nice` already.
fn sum(cpu: &CpuStat) -> f64 {
    cpu.user + cpu.nice + cpu.system + cpu.idle + cpu.iowait + cpu.irq + cpu.soft_irq + cpu.steal
}

/// The last values of a series, oldest first.
#[derive(Debug, Clone, Default)]
pub struct History {
    points: VecDeque<f64>,
}

impl History {
    /// As wide as a wide terminal.
    pub const MOST: usize = 240;

    pub fn push(&mut self, value: f64) {
        if self.points.len() == Self::MOST {
            self.points.pop_front();
        }
        self.points.push_back(value);
    }

    /// The last `count` values, the newest first.
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
    fn a_counter_that_goes_back_or_stands_in_time_has_no_rate() {
        assert_eq!(per_second(10, 30, 2 * SECOND), Some(10.0));
        assert_eq!(per_second(30, 10, SECOND), None);
        assert_eq!(per_second(10, 30, Duration::ZERO), None);
        assert_eq!(per_second(10, 10, Duration::ZERO), None);
        assert_eq!(seconds_per_second(2.0, 1.0, SECOND), None);
        assert_eq!(seconds_per_second(1.0, f64::NAN, SECOND), None);
    }

    #[test]
    fn the_time_of_a_processor_is_split() {
        let earlier = CpuStat::default();
        let later = CpuStat {
            user: 2.0,
            nice: 1.0,
            system: 1.0,
            idle: 5.0,
            iowait: 1.0,
            ..earlier
        };
        let usage = CpuUse::between(&earlier, &later).unwrap();
        assert_eq!((usage.busy, usage.user), (40.0, 30.0));
        assert_eq!((usage.system, usage.waiting), (10.0, 10.0));
        assert_eq!(CpuUse::between(&later, &earlier), None, "it started anew");
        assert_eq!(CpuUse::between(&later, &later), None, "no time went by");
    }

    #[test]
    fn a_history_keeps_the_newest() {
        let mut history = History::default();
        for point in 0..History::MOST + 10 {
            history.push(point as f64);
        }
        let last = (History::MOST + 9) as f64;
        assert_eq!(history.newest(2).collect::<Vec<_>>(), [last, last - 1.0]);
        assert_eq!(history.newest(usize::MAX).count(), History::MOST);
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
        fn shares_of_a_processor_are_percents(
            earlier in any::<[f64; 8]>(),
            later in any::<[f64; 8]>(),
        ) {
            let stat = |[user, nice, system, idle, iowait, irq, soft_irq, steal]: [f64; 8]| CpuStat {
                user, nice, system, idle, iowait, irq, soft_irq, steal, guest: 0.0, guest_nice: 0.0,
            };
            if let Some(usage) = CpuUse::between(&stat(earlier), &stat(later)) {
                for percent in [usage.busy, usage.user, usage.system, usage.waiting, usage.stolen] {
                    prop_assert!((0.0..=100.0).contains(&percent));
                }
            }
        }
    }
}
