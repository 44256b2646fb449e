//! Runs at a fixed interval.

use std::time::Duration;

use jiff::Timestamp;

/// Returns the first time after `now` on the grid of `every` that begins at `anchor`, so that runs
/// do not drift. After a clock was set back it is never further away than the interval.
pub fn next_of_interval(anchor: Timestamp, every: Duration, now: Timestamp) -> Option<Timestamp> {
    let every = i128::try_from(every.as_nanos()).ok().filter(|it| *it > 0)?;
    let (anchor, now) = (anchor.as_nanosecond(), now.as_nanosecond());
    let passed = (now - anchor).div_euclid(every);
    let next = anchor.checked_add(passed.checked_add(1)?.checked_mul(every)?)?;
    Timestamp::from_nanosecond(next).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_next_time_is_after_now_on_the_grid(
            anchor in -1_000_000_000_i64..4_000_000_000,
            now in -1_000_000_000_i64..4_000_000_000,
            every in 1_u64..10_000_000,
        ) {
            let at = |second| Timestamp::from_second(second).unwrap();
            let interval = Duration::from_secs(every);
            let next = next_of_interval(at(anchor), interval, at(now)).unwrap().as_second();
            prop_assert!(next > now && next - now <= every.cast_signed());
            prop_assert_eq!((next - anchor).rem_euclid(every.cast_signed()), 0);
        }
    }

    #[test]
    fn an_interval_of_nothing_has_no_next_time() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(next_of_interval(now, Duration::ZERO, now), None);
        assert_eq!(next_of_interval(now, Duration::MAX, now), None);
    }
}
