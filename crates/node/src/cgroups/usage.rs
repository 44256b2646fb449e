//! The usage of one cgroup, from the hierarchy that accounts for it: v2 where it does, else v1.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::Directories;
use super::parse::{counter, cpus, io_v1, io_v2, limit, pressure};

/// No file of a cgroup that is read here is longer, except lists of processes.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// Lists of processes: 8 MiB name about a million.
const MAX_PROCESSES_BYTES: u64 = 8 << 20;
const NANOS_PER_MICRO: u64 = 1000;
/// v1 counts user and system time in ticks of 10 ms, whatever the kernel's own.
const NANOS_PER_TICK: u64 = 10_000_000;

/// The usage of a cgroup and its descendants. `None` is what the kernel does not account for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Usage {
    /// Processes in the cgroup itself.
    pub processes: u32,
    pub cpu: Option<Cpu>,
    pub memory: Option<Memory>,
    pub pids: Option<Pids>,
    pub io: Option<Io>,
    pub cpu_pressure: Option<Pressure>,
    pub memory_pressure: Option<Pressure>,
    pub io_pressure: Option<Pressure>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cpu {
    pub usage_nanos: u64,
    pub user_nanos: u64,
    pub system_nanos: u64,
    pub periods: u64,
    pub throttled_periods: u64,
    pub throttled_nanos: u64,
    /// In CPUs.
    pub limit: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    pub current_bytes: u64,
    pub limit_bytes: Option<u64>,
    pub peak_bytes: u64,
    pub anonymous_bytes: u64,
    pub file_bytes: u64,
    pub swap_bytes: u64,
    pub oom_kills: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pids {
    pub current: u64,
    pub limit: Option<u64>,
}

/// I/O of all devices together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Io {
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub reads: u64,
    pub writes: u64,
}

/// Pressure stall information.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pressure {
    /// At least one process waited.
    pub some: Stall,
    /// All processes waited.
    pub full: Stall,
}

/// Shares of time in percent, and the time in all.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stall {
    pub avg10: f64,
    pub avg60: f64,
    pub avg300: f64,
    pub total_micros: u64,
}

impl Directories {
    pub(super) fn usage(&self) -> Usage {
        let unified = self.unified.as_deref();
        let pressure_of = |file: &str| pressure(&text(&unified?.join(file))?);
        Usage {
            processes: self.processes(),
            cpu: unified.and_then(cpu_v2).or_else(|| self.cpu_v1()),
            memory: unified
                .and_then(memory_v2)
                .or_else(|| memory_v1(self.v1("memory")?)),
            pids: unified.and_then(pids).or_else(|| pids(self.v1("pids")?)),
            io: unified
                .and_then(io_of_v2)
                .or_else(|| io_of_v1(self.v1("blkio")?)),
            cpu_pressure: pressure_of("cpu.pressure"),
            memory_pressure: pressure_of("memory.pressure"),
            io_pressure: pressure_of("io.pressure"),
        }
    }

    fn v1(&self, controller: &str) -> Option<&Path> {
        let has = |(words, _): &&(Vec<String>, PathBuf)| words.iter().any(|one| one == controller);
        self.v1.iter().find(has).map(|(_, dir)| dir.as_path())
    }

    /// Counts processes; in the hierarchies of v1 each process may be at another path.
    fn processes(&self) -> u32 {
        let count = |dir: &PathBuf| {
            let list = text_up_to(&dir.join("cgroup.procs"), MAX_PROCESSES_BYTES);
            list.map_or(0, |list| list.lines().count())
        };
        let most = self.all().map(count).max().unwrap_or(0);
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    fn cpu_v1(&self) -> Option<Cpu> {
        let account = self.v1("cpuacct")?;
        let times = text(&account.join("cpuacct.stat")).unwrap_or_default();
        let ticks = |name| counter(&times, name).unwrap_or(0);
        let mut cpu = Cpu {
            usage_nanos: number(&account.join("cpuacct.usage"))?,
            user_nanos: ticks("user").saturating_mul(NANOS_PER_TICK),
            system_nanos: ticks("system").saturating_mul(NANOS_PER_TICK),
            ..Cpu::default()
        };
        if let Some(dir) = self.v1("cpu") {
            let stat = text(&dir.join("cpu.stat")).unwrap_or_default();
            cpu.periods = counter(&stat, "nr_periods").unwrap_or(0);
            cpu.throttled_periods = counter(&stat, "nr_throttled").unwrap_or(0);
            cpu.throttled_nanos = counter(&stat, "throttled_time").unwrap_or(0);
            let quota = text(&dir.join("cpu.cfs_quota_us"));
            let period = text(&dir.join("cpu.cfs_period_us"));
            cpu.limit = quota
                .zip(period)
                .and_then(|(quota, period)| cpus(&quota, &period));
        }
        Some(cpu)
    }
}

fn cpu_v2(dir: &Path) -> Option<Cpu> {
    let stat = text(&dir.join("cpu.stat"))?;
    let value = |name| counter(&stat, name).unwrap_or(0);
    let nanos = |name| value(name).saturating_mul(NANOS_PER_MICRO);
    let max = text(&dir.join("cpu.max"));
    Some(Cpu {
        usage_nanos: nanos("usage_usec"),
        user_nanos: nanos("user_usec"),
        system_nanos: nanos("system_usec"),
        periods: value("nr_periods"),
        throttled_periods: value("nr_throttled"),
        throttled_nanos: nanos("throttled_usec"),
        limit: max.and_then(|max| {
            let (quota, period) = max.split_once(' ')?;
            cpus(quota, period)
        }),
    })
}

fn memory_v2(dir: &Path) -> Option<Memory> {
    let stat = text(&dir.join("memory.stat")).unwrap_or_default();
    let events = text(&dir.join("memory.events")).unwrap_or_default();
    Some(Memory {
        current_bytes: number(&dir.join("memory.current"))?,
        limit_bytes: limit(&text(&dir.join("memory.max")).unwrap_or_default()),
        peak_bytes: number(&dir.join("memory.peak")).unwrap_or(0),
        anonymous_bytes: counter(&stat, "anon").unwrap_or(0),
        file_bytes: counter(&stat, "file").unwrap_or(0),
        swap_bytes: number(&dir.join("memory.swap.current")).unwrap_or(0),
        oom_kills: counter(&events, "oom_kill").unwrap_or(0),
    })
}

fn memory_v1(dir: &Path) -> Option<Memory> {
    let stat = text(&dir.join("memory.stat")).unwrap_or_default();
    let control = text(&dir.join("memory.oom_control")).unwrap_or_default();
    Some(Memory {
        current_bytes: number(&dir.join("memory.usage_in_bytes"))?,
        limit_bytes: limit(&text(&dir.join("memory.limit_in_bytes")).unwrap_or_default()),
        peak_bytes: number(&dir.join("memory.max_usage_in_bytes")).unwrap_or(0),
        anonymous_bytes: counter(&stat, "total_rss").unwrap_or(0),
        file_bytes: counter(&stat, "total_cache").unwrap_or(0),
        swap_bytes: counter(&stat, "total_swap").unwrap_or(0),
        oom_kills: counter(&control, "oom_kill").unwrap_or(0),
    })
}

fn pids(dir: &Path) -> Option<Pids> {
    Some(Pids {
        current: number(&dir.join("pids.current"))?,
        limit: limit(&text(&dir.join("pids.max")).unwrap_or_default()),
    })
}

fn io_of_v2(dir: &Path) -> Option<Io> {
    Some(io_v2(&text(&dir.join("io.stat"))?))
}

fn io_of_v1(dir: &Path) -> Option<Io> {
    let bytes = text(&dir.join("blkio.throttle.io_service_bytes_recursive"))?;
    let operations = text(&dir.join("blkio.throttle.io_serviced_recursive"));
    let (read_bytes, written_bytes) = io_v1(&bytes);
    let (reads, writes) = io_v1(&operations.unwrap_or_default());
    Some(Io {
        read_bytes,
        written_bytes,
        reads,
        writes,
    })
}

fn number(file: &Path) -> Option<u64> {
    text(file)?.trim().parse().ok()
}

fn text(file: &Path) -> Option<String> {
    text_up_to(file, MAX_FILE_BYTES)
}

/// Reads a file; `None` if there is none, or it cannot be read as that of a threaded cgroup.
fn text_up_to(file: &Path, max: u64) -> Option<String> {
    let mut text = String::new();
    let file = File::open(file).ok()?;
    file.take(max).read_to_string(&mut text).ok()?;
    Some(text)
}
