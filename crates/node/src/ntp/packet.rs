//! Packets of the Simple Network Time Protocol (RFC 5905, section 14): a request and the checks of
//! its answer. Sends nothing.

use std::time::Duration;

/// The length of a packet without extensions.
pub const PACKET_BYTES: usize = 48;
/// Seconds from 1900 to 1970.
const UNIX_EPOCH_SECONDS: i64 = 2_208_988_800;
/// Timestamps of 32-bit seconds wrap in 2036; smaller ones are of the next era.
const ERA_SECONDS: i64 = 1 << 32;
const ERA_PIVOT: u32 = 1 << 31;
/// Leap indicator 0, version 4, mode 3 (client).
const CLIENT_HEADER: u8 = 0x23;
const MODE_SERVER: u8 = 4;
const LEAP_UNSYNCHRONIZED: u8 = 3;
const MAX_STRATUM: u8 = 15;
/// A server that is further from its reference clock than this is not synchronized.
const MAX_ROOT_DISTANCE_SECONDS: f64 = 16.0;

/// The reason an answer is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NtpError {
    #[error("the answer has {0} bytes; an NTP packet has at least {PACKET_BYTES}")]
    Short(usize),
    #[error("the answer is not from an NTP server (mode {0})")]
    Mode(u8),
    #[error("the answer is not to this request (wrong origin timestamp)")]
    Origin,
    #[error("the server refuses to answer (kiss code {0})")]
    KissOfDeath(String),
    #[error("the clock of the server is not synchronized")]
    Unsynchronized,
    #[error("the server has stratum {0}; a synchronized one has 1 to {MAX_STRATUM}")]
    Stratum(u8),
    #[error("the answer has no transmit timestamp")]
    NoTime,
    #[error("the timestamps of the server contradict each other")]
    Inconsistent,
}

/// A request; its answer carries the same cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    cookie: [u8; 8],
}

/// The difference between the clocks of this machine and of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measurement {
    /// The clock of the server minus that of this machine, in nanoseconds.
    pub offset_nanos: i128,
    /// The time on the network.
    pub round_trip: Duration,
    pub stratum: u8,
}

impl Request {
    /// `cookie` takes the place of the client's time, which no server needs: it must be
    /// unpredictable, so that nobody off the path can answer.
    pub fn new(cookie: [u8; 8]) -> Self {
        Self { cookie }
    }

    pub fn packet(&self) -> [u8; PACKET_BYTES] {
        let mut packet = [0; PACKET_BYTES];
        packet[0] = CLIENT_HEADER;
        packet[40..].copy_from_slice(&self.cookie);
        packet
    }

    /// True if the packet claims to answer this request; others are not even errors, since
    /// anybody may send them.
    pub fn is_answered_by(&self, packet: &[u8]) -> bool {
        packet.get(24..32) == Some(&self.cookie)
    }

    /// Checks an answer. The request was sent at `sent_nanos` of the local clock since 1970, the
    /// answer came `elapsed` later.
    pub fn measure(
        &self,
        packet: &[u8],
        sent_nanos: i128,
        elapsed: Duration,
    ) -> Result<Measurement, NtpError> {
        let short = || NtpError::Short(packet.len());
        let header: &[u8; PACKET_BYTES] = packet.first_chunk().ok_or_else(short)?;
        let (leap, mode, stratum) = (header[0] >> 6, header[0] & 7, header[1]);
        if mode != MODE_SERVER {
            return Err(NtpError::Mode(mode));
        }
        if !self.is_answered_by(packet) {
            return Err(NtpError::Origin);
        }
        if stratum == 0 {
            let code = header[12..16].iter().map(|byte| char::from(*byte));
            let code = code.filter(char::is_ascii_alphanumeric).collect();
            return Err(NtpError::KissOfDeath(code));
        }
        if leap == LEAP_UNSYNCHRONIZED {
            return Err(NtpError::Unsynchronized);
        }
        if stratum > MAX_STRATUM {
            return Err(NtpError::Stratum(stratum));
        }
        if short_seconds(header, 4) / 2.0 + short_seconds(header, 8) > MAX_ROOT_DISTANCE_SECONDS {
            return Err(NtpError::Unsynchronized);
        }
        let (received, transmitted) = (time(header, 32), time(header, 40));
        let (Some(received), Some(transmitted)) = (received, transmitted) else {
            return Err(NtpError::NoTime);
        };
        let there = transmitted - received;
        let here = i128::try_from(elapsed.as_nanos()).map_err(|_| NtpError::Inconsistent)?;
        if there < 0 || there > here {
            return Err(NtpError::Inconsistent);
        }
        let arrived_nanos = sent_nanos + here;
        let round_trip = u64::try_from(here - there).map_err(|_| NtpError::Inconsistent)?;
        Ok(Measurement {
            offset_nanos: ((received - sent_nanos) + (transmitted - arrived_nanos)) / 2,
            round_trip: Duration::from_nanos(round_trip),
            stratum,
        })
    }
}

/// Reads a 16.16 fixed-point number of seconds.
fn short_seconds(packet: &[u8; PACKET_BYTES], at: usize) -> f64 {
    let bytes = packet[at..].first_chunk().copied().unwrap_or_default();
    f64::from(u32::from_be_bytes(bytes)) / 65536.0
}

/// Reads a 32.32 timestamp as nanoseconds since 1970; `None` for 0, which means unknown.
fn time(packet: &[u8; PACKET_BYTES], at: usize) -> Option<i128> {
    let word = |at: usize| {
        let bytes = packet[at..].first_chunk().copied().unwrap_or_default();
        u32::from_be_bytes(bytes)
    };
    let (seconds, fraction) = (word(at), word(at + 4));
    if seconds == 0 && fraction == 0 {
        return None;
    }
    let era = if seconds >= ERA_PIVOT { 0 } else { ERA_SECONDS };
    let seconds = i128::from(i64::from(seconds) + era - UNIX_EPOCH_SECONDS);
    let nanos = (u64::from(fraction) * 1_000_000_000) >> 32;
    Some(seconds * 1_000_000_000 + i128::from(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COOKIE: [u8; 8] = *b"coo\0kie!";
    /// 2026-11-18T00:00:00Z.
    const NOW: i128 = 1_795_305_600_000_000_000;

    fn stamp(nanos: i128) -> [u8; 8] {
        let seconds = nanos.div_euclid(1_000_000_000) + i128::from(UNIX_EPOCH_SECONDS);
        let fraction = (nanos.rem_euclid(1_000_000_000) << 32) / 1_000_000_000;
        let seconds = u32::try_from(seconds % i128::from(ERA_SECONDS)).unwrap();
        let fraction = u32::try_from(fraction).unwrap();
        [seconds.to_be_bytes(), fraction.to_be_bytes()]
            .concat()
            .try_into()
            .unwrap()
    }

    /// An answer of a server whose clock is `offset` ahead, after a symmetric way of 10 ms.
    fn answer(offset: i128) -> [u8; PACKET_BYTES] {
        let mut packet = [0; PACKET_BYTES];
        packet[0] = 0x24;
        packet[1] = 2;
        packet[24..32].copy_from_slice(&COOKIE);
        packet[32..40].copy_from_slice(&stamp(NOW + offset + 10_000_000));
        packet[40..48].copy_from_slice(&stamp(NOW + offset + 15_000_000));
        packet
    }

    fn measure(packet: &[u8]) -> Result<Measurement, NtpError> {
        Request::new(COOKIE).measure(packet, NOW, Duration::from_millis(25))
    }

    #[test]
    fn the_offset_is_that_of_the_middle_of_the_exchange() {
        for offset in [
            0,
            5_000_000_000,
            -86_400_000_000_000,
            400_000_000_000_000_000,
        ] {
            let found = measure(&answer(offset)).unwrap();
            assert!((found.offset_nanos - offset).abs() < 10, "{found:?}");
            let ways = found.round_trip.as_nanos().abs_diff(20_000_000);
            assert!(ways < 10, "{found:?}");
            assert_eq!(found.stratum, 2);
        }
    }

    #[test]
    fn an_answer_that_cannot_be_trusted_is_refused() {
        let with = |change: &dyn Fn(&mut [u8; PACKET_BYTES])| {
            let mut packet = answer(0);
            change(&mut packet);
            measure(&packet).unwrap_err()
        };
        assert_eq!(measure(&answer(0)[..47]), Err(NtpError::Short(47)));
        assert_eq!(with(&|packet| packet[0] = 0x23), NtpError::Mode(3));
        assert_eq!(with(&|packet| packet[25] ^= 1), NtpError::Origin);
        assert_eq!(with(&|packet| packet[0] |= 0xc0), NtpError::Unsynchronized);
        assert_eq!(with(&|packet| packet[1] = 16), NtpError::Stratum(16));
        assert_eq!(with(&|packet| packet[9] = 17), NtpError::Unsynchronized);
        assert_eq!(with(&|packet| packet[40..].fill(0)), NtpError::NoTime);
        let kiss = with(&|packet| {
            packet[1] = 0;
            packet[12..16].copy_from_slice(b"RATE");
        });
        assert_eq!(kiss, NtpError::KissOfDeath("RATE".to_owned()));
        let backwards = with(&|packet| packet[40..48].copy_from_slice(&stamp(NOW)));
        assert_eq!(backwards, NtpError::Inconsistent);
        let too_long = with(&|packet| packet[40..48].copy_from_slice(&stamp(NOW + NOW / 1000)));
        assert_eq!(too_long, NtpError::Inconsistent);
    }

    #[test]
    fn the_request_is_that_of_a_client_and_carries_no_time() {
        let packet = Request::new(COOKIE).packet();
        assert_eq!(packet[0], 0x23);
        assert!(packet[1..40].iter().all(|byte| *byte == 0));
    }

    proptest! {
        #[test]
        fn no_answer_causes_a_panic(mut packet in prop::collection::vec(any::<u8>(), 0..70)) {
            let _ = measure(&packet);
            if packet.len() >= 32 {
                packet[0] = 0x24;
                packet[24..32].copy_from_slice(&COOKIE);
                let _ = measure(&packet);
            }
        }
    }
}
