//! Rate limit for log lines about refused handshakes: the first ones of each second are logged,
//! the rest counted.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::info;

const LOGGED_PER_SECOND: u32 = 10;

#[derive(Debug, Default)]
pub(super) struct Refusals {
    second: Mutex<Second>,
}

#[derive(Debug, Default)]
struct Second {
    began: Option<Instant>,
    logged: u32,
    suppressed: u64,
}

impl Refusals {
    pub(super) fn log(&self, from: &str, why: &str) {
        let (logged, suppressed) = self.count(Instant::now());
        if suppressed > 0 {
            info!(count = suppressed, "further TLS handshakes refused");
        }
        if logged {
            info!(from, why, "TLS handshake refused");
        }
    }

    /// Returns whether this one is logged and how many before it were not.
    fn count(&self, now: Instant) -> (bool, u64) {
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        let over = second
            .began
            .is_none_or(|began| now.duration_since(began) >= Duration::from_secs(1));
        let suppressed = if over { second.suppressed } else { 0 };
        if over {
            *second = Second {
                began: Some(now),
                ..Second::default()
            };
        }
        if second.logged < LOGGED_PER_SECOND {
            second.logged += 1;
            (true, suppressed)
        } else {
            second.suppressed += 1;
            (false, suppressed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_second_are_logged_and_the_rest_counted() {
        let refusals = Refusals::default();
        let now = Instant::now();
        let logged = (0..100).filter(|_| refusals.count(now).0).count();
        assert_eq!(logged, 10);
        let later = now + Duration::from_secs(1);
        assert_eq!(refusals.count(later), (true, 90));
        assert_eq!(refusals.count(later), (true, 0));
    }
}
