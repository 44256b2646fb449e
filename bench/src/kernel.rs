//! What the kernel knows about a process and the machine, from `/proc`.

use std::fs;

use anyhow::{Context as _, Result};

/// The unit of times in `/proc`, whatever the kernel's own clock: part of its promise to programs.
const TICKS_PER_SECOND: f64 = 100.0;

/// How much memory a process has, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub resident: u64,
    /// Pages shared with others counted by their share.
    pub proportional: u64,
    /// What is not backed by a file: heap and stacks.
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

/// The most memory a process has had at once, in bytes.
pub fn peak_resident(pid: u32) -> Result<u64> {
    Ok(field(&read(pid, "status")?, "VmHWM:")? * 1024)
}

/// How often the threads of a process have been given a processor.
pub fn context_switches(pid: u32) -> Result<u64> {
    let mut switches = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = match fs::read_to_string(thread?.path().join("status")) {
            Ok(text) => text,
            // It has ended since it was listed.
            Err(_) => continue,
        };
        switches += field(&text, "voluntary_ctxt_switches:")?;
        switches += field(&text, "nonvoluntary_ctxt_switches:")?;
    }
    Ok(switches)
}

/// The processor time a process has used, in seconds.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = read(pid, "stat")?;
    // The name, in parentheses, may hold anything; the numbers come after it.
    let numbers = stat.rsplit_once(')').map_or("", |(_, numbers)| numbers);
    let ticks: u64 = numbers
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(str::parse::<u64>)
        .sum::<Result<_, _>>()?;
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// Who started a process, or looks after it since.
pub fn parent(pid: u32) -> Result<u32> {
    Ok(u32::try_from(field(&read(pid, "status")?, "PPid:")?)?)
}

/// What programs could still have without anything being swapped out, in bytes.
pub fn available() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("/proc/meminfo cannot be read")?;
    Ok(field(&text, "MemAvailable:")? * 1024)
}

pub fn release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

/// Of the last minute; not a number if the kernel does not tell.
pub fn load_average() -> f64 {
    fs::read_to_string("/proc/loadavg")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(f64::NAN)
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).with_context(|| format!("{path} cannot be read"))
}

/// The number on the line that begins with `key`.
fn field(text: &str, key: &str) -> Result<u64> {
    text.lines()
        .find_map(|line| {
            line.strip_prefix(key)?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .with_context(|| format!("the kernel does not tell {key:?} of a process"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory_and_has_run() {
        let own = std::process::id();
        let memory = Memory::of(own).unwrap();
        assert!(memory.resident >= memory.proportional);
        assert!(memory.anonymous > 0);
        assert!(peak_resident(own).unwrap() >= memory.anonymous);
        assert!(context_switches(own).unwrap() > 0);
        assert!(cpu_seconds(own).unwrap() >= 0.0);
        assert_eq!(parent(own).unwrap(), std::os::unix::process::parent_id());
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "nonvoluntary_ctxt_switches:\t9\nvoluntary_ctxt_switches:\t7\nRss:  12 kB\n";
        assert_eq!(field(text, "voluntary_ctxt_switches:").unwrap(), 7);
        assert_eq!(field(text, "Rss:").unwrap(), 12);
        assert!(field(text, "Pss:").is_err());
    }
}
