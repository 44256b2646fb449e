//! Figures of a process and of the machine from `/proc`.

use std::fs;
use std::io::{Error, Result};

/// USER_HZ, the unit of times in `/proc/PID/stat`: 100 on every Linux ABI that Rust supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// RSS.
    pub resident: u64,
    /// PSS: shared pages count by their share.
    pub proportional: u64,
    /// Pages without a file behind them: heap and stacks.
    pub anonymous: u64,
}

impl Memory {
    pub fn of(pid: u32) -> Result<Self> {
        let text = read(pid, "smaps_rollup")?;
        let size = |key| -> Result<u64> { Ok(field(&text, key)? * 1024) };
        Ok(Self {
            resident: size("Rss:")?,
            proportional: size("Pss:")?,
            anonymous: size("Anonymous:")?,
        })
    }
}

/// The peak RSS of a process, in bytes.
pub fn peak_resident(pid: u32) -> Result<u64> {
    Ok(field(&read(pid, "status")?, "VmHWM:")? * 1024)
}

/// Context switches of all threads of a process.
pub fn context_switches(pid: u32) -> Result<u64> {
    let mut switches = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = match fs::read_to_string(thread?.path().join("status")) {
            Ok(text) => text,
            // The thread has exited since it was listed.
            Err(_) => continue,
        };
        switches += field(&text, "voluntary_ctxt_switches:")?;
        switches += field(&text, "nonvoluntary_ctxt_switches:")?;
    }
    Ok(switches)
}

/// CPU time of all processes that were ever in a cgroup or below it, in seconds. `name` is below the
/// root of the v2 hierarchy, which may be mounted beside those of v1.
pub fn cgroup_cpu_seconds(name: &str) -> Result<f64> {
    let mut roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].into_iter();
    let texts = roots.find_map(|root| fs::read_to_string(format!("{root}/{name}/cpu.stat")).ok());
    let text = texts.ok_or_else(|| Error::other(format!("cgroup {name} has no cpu.stat")))?;
    let micros = text
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "));
    let micros: Option<f64> = micros.and_then(|micros| micros.parse().ok());
    Ok(micros.ok_or_else(|| Error::other("cpu.stat has no usage_usec"))? / 1e6)
}

/// CPU time of a process (user and system), in seconds.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = read(pid, "stat")?;
    // The command name, in parentheses, may contain anything; the numbers follow it.
    let numbers = stat.rsplit_once(')').map_or("", |(_, numbers)| numbers);
    let ticks: u64 = numbers
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(str::parse::<u64>)
        .sum::<std::result::Result<_, _>>()
        .map_err(Error::other)?;
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// The parent PID of a process.
pub fn parent(pid: u32) -> Result<u32> {
    let parent = field(&read(pid, "status")?, "PPid:")?;
    parent.try_into().map_err(Error::other)
}

/// Memory available without swapping, in bytes.
pub fn available() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    Ok(field(&text, "MemAvailable:")? * 1024)
}

/// The kernel release.
pub fn release() -> String {
    let uname = rustix::system::uname();
    uname.release().to_string_lossy().into_owned()
}

/// The load average of the last minute; NaN if it is unreadable.
pub fn load_average() -> f64 {
    fs::read_to_string("/proc/loadavg")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(f64::NAN)
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).map_err(|error| Error::other(format!("cannot read {path}: {error}")))
}

/// The number on the line that starts with `key`.
fn field(text: &str, key: &str) -> Result<u64> {
    text.lines()
        .find_map(|line| {
            line.strip_prefix(key)?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .ok_or_else(|| Error::other(format!("/proc has no field {key:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_process_has_memory_cpu_time_and_a_parent() {
        let own = std::process::id();
        let memory = Memory::of(own).unwrap();
        assert!(memory.resident >= memory.proportional);
        assert!(memory.anonymous > 0);
        assert!(peak_resident(own).unwrap() >= memory.anonymous);
        assert!(context_switches(own).unwrap() > 0);
        assert_eq!(parent(own).unwrap(), std::os::unix::process::parent_id());
        let before = cpu_seconds(own).unwrap();
        let mut rounds = 0;
        while cpu_seconds(own).unwrap() <= before {
            rounds += 1;
            assert!(rounds < 10_000_000, "CPU time does not grow");
        }
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "nonvoluntary_ctxt_switches:\t9\nvoluntary_ctxt_switches:\t7\nRss:  12 kB\n";
        assert_eq!(field(text, "voluntary_ctxt_switches:").unwrap(), 7);
        assert_eq!(field(text, "Rss:").unwrap(), 12);
        assert!(field(text, "Pss:").is_err());
    }
}
