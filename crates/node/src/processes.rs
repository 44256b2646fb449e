//! All processes, from `/proc`.
//!
//! Four reads and one stat per process, and no state between calls. A process that exits meanwhile is left out;
//! one with unreadable files is listed with the rest.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom, open, readlinkat, seek, statat};
use rustix::time::{ClockId, clock_gettime};

use crate::text::{number, read_small};

/// The length to which arguments are truncated, so that one process cannot fill the answer.
const MAX_ARGS_BYTES: usize = 64 << 10;
/// The total length of arguments after which the rest are truncated further.
const MANY_ARGS_BYTES: usize = 16 << 20;
const FEW_ARGS_BYTES: usize = 1 << 10;
/// The length to which `/etc/passwd` is read.
const MAX_PASSWD_BYTES: usize = 1 << 20;
/// `PF_KTHREAD`: a kernel thread has neither arguments nor an executable.
const KERNEL_THREAD: u64 = 0x0020_0000;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Process {
    pub pid: i32,
    pub ppid: i32,
    /// One letter, as `ps` shows it.
    pub state: String,
    pub threads: i32,
    /// User and system time.
    pub cpu_seconds: f64,
    pub virtual_bytes: u64,
    pub resident_bytes: u64,
    /// The name of the process, `comm`.
    pub command: String,
    /// Path of the executable; empty for kernel threads and where it may not be read.
    pub executable: String,
    /// The arguments, joined by spaces.
    pub args: String,
    /// The security label, such as an AppArmor profile; empty when there is none.
    pub label: String,
    /// Effective UID.
    pub uid: Option<u32>,
    /// Name of the UID in `/etc/passwd`; empty when there is none.
    pub user: String,
    pub started: Option<SystemTime>,
    /// Time since the start, by the clock that counts suspended time too.
    pub elapsed_seconds: f64,
    /// Bytes read from storage; `None` for kernel threads and where it may not be read.
    pub read_bytes: Option<u64>,
    /// Bytes written to storage, without those truncated before they were written.
    pub write_bytes: Option<u64>,
}

/// Returns all processes, ordered by PID.
pub fn processes() -> io::Result<Vec<Process>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = open("/proc", flags, Mode::empty())?;
    let units = Units::of_this_kernel();
    let clock = Clock::now();
    let users = Users::read();
    let labels = has_labels();
    let mut all = Vec::with_capacity(256);
    let mut scratch = Vec::with_capacity(4096);
    let mut args_bytes = 0;
    for pid in pids(proc.as_fd())? {
        let most = if args_bytes < MANY_ARGS_BYTES {
            MAX_ARGS_BYTES
        } else {
            FEW_ARGS_BYTES
        };
        if let Some((mut process, start)) = read(proc.as_fd(), pid, units, most, &mut scratch) {
            let elapsed = clock.since_boot.saturating_sub(start);
            process.elapsed_seconds = elapsed.as_secs_f64();
            process.started = clock.time.checked_sub(elapsed);
            process.user = process.uid.map(|uid| users.name(uid)).unwrap_or_default();
            if labels
                && read_small(
                    proc.as_fd(),
                    &format!("{pid}/attr/current"),
                    4096,
                    &mut scratch,
                )
                .is_ok()
            {
                process.label = lossy(scratch.trim_ascii_end());
            }
            args_bytes += process.args.len();
            all.push(process);
        }
    }
    Ok(all)
}

/// Returns the PIDs in an open `/proc`, in order.
pub(crate) fn pids(proc: BorrowedFd<'_>) -> io::Result<Vec<i32>> {
    // The last reader left the offset at the end.
    seek(proc, SeekFrom::Start(0))?;
    let mut pids = Vec::with_capacity(256);
    let mut space = Vec::with_capacity(32 << 10);
    let mut entries = RawDir::new(proc, space.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        if let Some(pid) = number(entry?.file_name().to_bytes()) {
            pids.push(pid);
        }
    }
    pids.sort_unstable();
    Ok(pids)
}

fn read(
    proc: BorrowedFd<'_>,
    pid: i32,
    units: Units,
    most_args: usize,
    scratch: &mut Vec<u8>,
) -> Option<(Process, Duration)> {
    read_small(proc, &format!("{pid}/stat"), 4096, scratch).ok()?;
    let Stat {
        mut process,
        flags,
        start,
    } = parse_stat(scratch, units)?;
    // The directory belongs to the effective UID, also of a process that is not dumpable.
    let directory = statat(proc, pid.to_string(), AtFlags::empty());
    process.uid = directory.ok().map(|directory| directory.st_uid);
    if flags & KERNEL_THREAD == 0 {
        if read_small(proc, &format!("{pid}/io"), 4096, scratch).is_ok() {
            (process.read_bytes, process.write_bytes) = parse_io(scratch);
        }
        if read_small(proc, &format!("{pid}/cmdline"), most_args, scratch).is_ok() {
            process.args = join_args(scratch);
        }
        if let Ok(path) = readlinkat(proc, format!("{pid}/exe"), Vec::with_capacity(256)) {
            process.executable = lossy(path.as_bytes());
        }
    }
    Some((process, start))
}

/// The time of one listing by two clocks.
struct Clock {
    since_boot: Duration,
    time: SystemTime,
}

impl Clock {
    fn now() -> Self {
        Self {
            since_boot: Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default(),
            time: SystemTime::now(),
        }
    }
}

/// Names of `/etc/passwd`. Other sources of names are not asked: they may be servers that hang.
struct Users {
    names: HashMap<u32, String>,
}

impl Users {
    fn read() -> Self {
        let mut text = Vec::new();
        let etc = rustix::fs::CWD;
        let read = read_small(etc, "/etc/passwd", MAX_PASSWD_BYTES, &mut text);
        Self {
            names: read.map(|()| parse_passwd(&text)).unwrap_or_default(),
        }
    }

    fn name(&self, uid: u32) -> String {
        self.names.get(&uid).cloned().unwrap_or_default()
    }
}

/// Parses `/etc/passwd`; of several names for one UID the first counts.
fn parse_passwd(text: &[u8]) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for line in text.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b':');
        if let (Some(name), Some(_), Some(uid)) = (fields.next(), fields.next(), fields.next())
            && let Some(uid) = number(uid)
            && !name.is_empty()
        {
            names.entry(uid).or_insert_with(|| lossy(name));
        }
    }
    names
}

/// Parses `/proc/PID/io`; returns the bytes read from and written to storage.
fn parse_io(text: &[u8]) -> (Option<u64>, Option<u64>) {
    let value = |key: &[u8]| {
        text.split(|byte| *byte == b'\n').find_map(|line| {
            let rest = line.strip_prefix(key)?.strip_prefix(b":")?;
            number::<u64>(rest.trim_ascii())
        })
    };
    let cancelled = value(b"cancelled_write_bytes").unwrap_or(0);
    let written = value(b"write_bytes").map(|bytes| bytes.saturating_sub(cancelled));
    (value(b"read_bytes"), written)
}

/// Units of the kernel's counters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Units {
    pub(crate) ticks_per_second: u64,
    pub(crate) page_bytes: u64,
}

impl Units {
    pub(crate) fn of_this_kernel() -> Self {
        Self {
            ticks_per_second: rustix::param::clock_ticks_per_second(),
            page_bytes: u64::try_from(rustix::param::page_size()).unwrap_or(4096),
        }
    }
}

/// The content of `/proc/PID/stat`.
struct Stat {
    process: Process,
    flags: u64,
    /// Time of the start since boot.
    start: Duration,
}

/// Parses `/proc/PID/stat`. The name is in parentheses and may itself contain parentheses and
/// spaces, so it ends at the last one.
fn parse_stat(line: &[u8], units: Units) -> Option<Stat> {
    let open = line.iter().position(|b| *b == b'(')?;
    let close = line.iter().rposition(|b| *b == b')')?;
    let pid = number(line.get(..open)?.trim_ascii())?;
    let command = lossy(line.get(open + 1..close)?);
    let rest: Vec<&[u8]> = line
        .get(close + 1..)?
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .collect();
    // Numbered as in proc(5), where the name is field 2 and the state field 3.
    let field = |n: usize| rest.get(n - 3).copied();
    let count = |n: usize| field(n).and_then(number::<u64>);
    let ticks = count(14)?.saturating_add(count(15)?);
    #[expect(
        clippy::cast_precision_loss,
        reason = "seconds with a fraction are what is wanted"
    )]
    let cpu_seconds = ticks as f64 / units.ticks_per_second.max(1) as f64;
    let process = Process {
        pid,
        ppid: field(4).and_then(number)?,
        state: lossy(field(3)?),
        threads: field(20).and_then(number)?,
        cpu_seconds,
        virtual_bytes: count(23)?,
        resident_bytes: count(24).unwrap_or(0).saturating_mul(units.page_bytes),
        command,
        ..Process::default()
    };
    let start_ticks = count(22).unwrap_or(0);
    let ticks_per_second = units.ticks_per_second.max(1);
    let hundredths = u128::from(start_ticks) * 100 / u128::from(ticks_per_second);
    let start = Duration::from_millis(u64::try_from(hundredths * 10).unwrap_or(u64::MAX));
    Some(Stat {
        process,
        flags: count(9)?,
        start,
    })
}

fn join_args(cmdline: &mut Vec<u8>) -> String {
    while cmdline.last() == Some(&0) {
        cmdline.pop();
    }
    for byte in cmdline.iter_mut().filter(|byte| **byte == 0) {
        *byte = b' ';
    }
    lossy(cmdline)
}

pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// True if a security module labels processes; reading labels without one only costs time.
fn has_labels() -> bool {
    std::fs::read_to_string("/sys/kernel/security/lsm").is_ok_and(|modules| {
        ["apparmor", "selinux", "smack"]
            .iter()
            .any(|m| modules.contains(m))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNITS: Units = Units {
        ticks_per_second: 100,
        page_bytes: 4096,
    };

    #[test]
    fn this_process_is_listed_with_its_own_values() {
        let all = processes().unwrap();
        let own = all
            .iter()
            .find(|p| u32::try_from(p.pid) == Ok(std::process::id()))
            .unwrap();
        assert_eq!(
            own.ppid,
            i32::try_from(std::os::unix::process::parent_id()).unwrap()
        );
        assert_eq!(
            own.executable,
            std::env::current_exe().unwrap().display().to_string()
        );
        assert!(own.args.starts_with(&std::env::args().next().unwrap()));
        assert!(own.resident_bytes > 0 && own.virtual_bytes >= own.resident_bytes);
        assert_eq!(own.uid, Some(rustix::process::geteuid().as_raw()));
        assert!(own.elapsed_seconds < 3600.0, "{}", own.elapsed_seconds);
        let started = own.started.unwrap().elapsed().unwrap_or_default();
        assert!(started < Duration::from_secs(3600), "{started:?}");
        assert!(own.read_bytes.is_some() && own.write_bytes.is_some());
        assert!(all.is_sorted_by_key(|process| process.pid));
    }

    #[test]
    fn a_name_may_contain_parentheses_and_spaces() {
        let line = b"42 (a) (b c) S 1 42 42 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 3 0 9 8192 2 1 1";
        let Stat { process, start, .. } = parse_stat(line, UNITS).unwrap();
        assert_eq!(start, Duration::from_millis(90));
        assert_eq!(process.command, "a) (b c");
        assert_eq!((process.pid, process.ppid, process.threads), (42, 1, 3));
        assert_eq!(process.state, "S");
        assert!((process.cpu_seconds - 2.0).abs() < f64::EPSILON);
        assert_eq!(
            (process.virtual_bytes, process.resident_bytes),
            (8192, 8192)
        );
    }

    #[test]
    fn users_are_the_first_names_of_their_uid() {
        let names =
            parse_passwd(b"root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:\n\n:x:7:\nx:y\nw:x:33:33");
        assert_eq!(names.len(), 2);
        assert_eq!(names[&0], "root");
        assert_eq!(names[&33], "w");
    }

    #[test]
    fn io_counts_what_reaches_storage() {
        let text = b"rchar: 9\nwchar: 8\nsyscr: 1\nsyscw: 1\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 4096\n";
        assert_eq!(parse_io(text), (Some(4096), Some(4096)));
        assert_eq!(parse_io(b"read_bytes: x\n"), (None, None));
    }

    #[test]
    fn arguments_are_joined_by_spaces() {
        assert_eq!(
            join_args(&mut b"sh\0-c\0echo  hi\0".to_vec()),
            "sh -c echo  hi"
        );
        assert_eq!(join_args(&mut Vec::new()), "");
    }

    proptest! {
        #[test]
        fn no_line_causes_a_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_stat(&line, UNITS);
            let _ = parse_io(&line);
            let _ = parse_passwd(&line);
        }
    }
}
