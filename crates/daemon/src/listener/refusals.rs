//! What strangers do to the log: each refused handshake is worth a line, a thousand a second are
//! not. So many a second are told; of the rest, how many they were.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::info;

const TOLD_PER_SECOND: u32 = 10;

#[derive(Debug, Default)]
pub(super) struct Refusals {
    second: Mutex<Second>,
}

#[derive(Debug, Default)]
struct Second {
    began: Option<Instant>,
    told: u32,
    untold: u64,
}

impl Refusals {
    pub(super) fn tell(&self, from: SocketAddr, why: &str) {
        let (tell, untold) = self.count(Instant::now());
        if untold > 0 {
            info!(count = untold, "further TLS handshakes refused");
        }
        if tell {
            info!(%from, why, "TLS handshake refused");
        }
    }

    /// Whether this one is told, and how many before it were not.
    fn count(&self, now: Instant) -> (bool, u64) {
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        let over = second
            .began
            .is_none_or(|began| now.duration_since(began) >= Duration::from_secs(1));
        let untold = if over { second.untold } else { 0 };
        if over {
            *second = Second {
                began: Some(now),
                ..Second::default()
            };
        }
        if second.told < TOLD_PER_SECOND {
            second.told += 1;
            (true, untold)
        } else {
            second.untold += 1;
            (false, untold)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_second_are_told_and_the_rest_counted() {
        let refusals = Refusals::default();
        let now = Instant::now();
        let told = (0..100).filter(|_| refusals.count(now).0).count();
        assert_eq!(told, 10);
        let later = now + Duration::from_secs(1);
        assert_eq!(refusals.count(later), (true, 90));
        assert_eq!(refusals.count(later), (true, 0));
    }
}
