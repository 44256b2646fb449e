//! Records of the kernel log from `/dev/kmsg`: one record per read.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags, SeekFrom, open, seek};
use rustix::io::{Errno, read};

/// The maximum length of a record.
const RECORD_BYTES: usize = 8 << 10;

/// Names by number, as syslog's RFC 5424 orders them; 12 to 15 have no common name.
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];
const PRIORITIES: [&str; 8] = [
    "emerg", "alert", "crit", "err", "warning", "notice", "info", "debug",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    pub facility: u32,
    pub priority: u32,
    pub sequence: u64,
    /// Time since boot.
    pub since_boot: Duration,
    /// With its continuation lines, without the last newline.
    pub message: &'a [u8],
}

impl<'a> Record<'a> {
    /// `<prefix>,<sequence>,<microseconds>,<flags>[,…];<message>\n[ <key>=<value>\n…]`
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let end = bytes.iter().position(|b| *b == b';')?;
        let (head, message) = bytes.split_at(end);
        let mut fields = std::str::from_utf8(head).ok()?.split(',');
        let prefix: u32 = fields.next()?.parse().ok()?;
        let sequence = fields.next()?.parse().ok()?;
        let micros = fields.next()?.parse().ok()?;
        let message = message.get(1..)?;
        Some(Self {
            facility: prefix >> 3,
            priority: prefix & 7,
            sequence,
            since_boot: Duration::from_micros(micros),
            message: message.strip_suffix(b"\n").unwrap_or(message),
        })
    }

    pub fn facility_name(&self) -> &'static str {
        let index = usize::try_from(self.facility).unwrap_or(usize::MAX);
        FACILITIES.get(index).copied().unwrap_or("unknown")
    }

    pub fn priority_name(&self) -> &'static str {
        PRIORITIES[(self.priority & 7) as usize]
    }
}

/// The first record to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The oldest record in the kernel's buffer.
    Oldest,
    /// The next record written.
    Now,
}

/// The kernel log, opened for non-blocking reads.
#[derive(Debug)]
pub struct KernelLog {
    device: OwnedFd,
}

/// The result of one read.
#[derive(Debug)]
pub enum Look {
    /// This many bytes of the buffer are a record.
    Record(usize),
    /// Records were overwritten before they could be read; the next read returns the oldest.
    Overrun,
    /// No further record yet.
    Empty,
}

impl KernelLog {
    pub fn open(from: From) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let device = open("/dev/kmsg", flags, Mode::empty())?;
        if from == From::Now {
            seek(&device, SeekFrom::End(0))?;
        }
        Ok(Self { device })
    }

    pub fn buffer() -> Vec<u8> {
        vec![0; RECORD_BYTES]
    }

    pub fn next(&self, buffer: &mut [u8]) -> io::Result<Look> {
        loop {
            return match read(&self.device, &mut *buffer) {
                Ok(length) => Ok(Look::Record(length)),
                Err(Errno::PIPE) => Ok(Look::Overrun),
                Err(Errno::AGAIN) => Ok(Look::Empty),
                Err(Errno::INTR) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }
}

impl AsRawFd for KernelLog {
    fn as_raw_fd(&self) -> RawFd {
        self.device.as_raw_fd()
    }
}

impl AsFd for KernelLog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Returns the wall-clock time of boot that kernel log times are relative to.
pub fn boot_time() -> SystemTime {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(since.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(since.tv_nsec).unwrap_or(0);
    let now = SystemTime::now();
    now.checked_sub(Duration::new(seconds, nanos))
        .unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_record_keeps_its_continuation_lines() {
        let bytes = b"6,339,5140900,-,caller=T1;NET: a; b\n SUBSYSTEM=net\n DEVICE=n1\n";
        let record = Record::parse(bytes).unwrap();
        assert_eq!(
            (record.facility_name(), record.priority_name()),
            ("kern", "info")
        );
        assert_eq!(record.sequence, 339);
        assert_eq!(record.since_boot, Duration::from_micros(5_140_900));
        assert_eq!(record.message, b"NET: a; b\n SUBSYSTEM=net\n DEVICE=n1");
    }

    #[test]
    fn facilities_are_numbered_as_syslog_does() {
        let facility = |prefix: u32| {
            let bytes = format!("{prefix},1,1,-;x\n");
            Record::parse(bytes.as_bytes()).unwrap().facility_name()
        };
        assert_eq!(facility(3 << 3), "daemon");
        assert_eq!(facility(16 << 3), "local0");
        assert_eq!(facility(23 << 3), "local7");
        assert_eq!(facility(99 << 3), "unknown");
    }

    #[test]
    fn malformed_text_is_no_record() {
        for bytes in [
            &b""[..],
            b";",
            b"x,1,1,-;m",
            b"6,1;m",
            b"6,1,1,-",
            b"-6,1,1,-;m",
        ] {
            assert_eq!(Record::parse(bytes), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(record) = Record::parse(&bytes) {
                prop_assert!(record.priority_name().len() <= 7);
            }
        }
    }
}
