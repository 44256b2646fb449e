//! Resource usage of a cgroup: from its controllers, or summed over its processes where none
//! counts.

use std::fs;
use std::path::Path;

use rustix::process::Pid;

use super::cgroups::{CgroupError, Cgroups};
use super::layout::Controller;

/// Memory, CPU time and process count of a cgroup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub memory_bytes: u64,
    pub cpu_nanos: u64,
    pub processes: u64,
}

impl Cgroups {
    /// Reads the usage of a cgroup; zero if it does not exist.
    pub fn usage(&self, cgroup: &str) -> Result<Usage, CgroupError> {
        let pids = self.processes(cgroup)?;
        let number =
            |path: &Path| -> Option<u64> { fs::read_to_string(path).ok()?.trim().parse().ok() };
        let v1 = |controller, file: &str| {
            let hierarchy = self.layout.v1.get(&controller)?;
            number(&self.path_in(hierarchy, cgroup).join(file))
        };
        let membership = self.path_in(&self.membership_hierarchy(), cgroup);
        let cpu = v1(Controller::Cpuacct, "cpuacct.usage")
            .or_else(|| v2_cpu(&membership.join("cpu.stat")))
            .unwrap_or_else(|| pids.iter().filter_map(|pid| process_cpu(*pid)).sum());
        let memory = v1(Controller::Memory, "memory.usage_in_bytes")
            .or_else(|| number(&membership.join("memory.current")))
            .unwrap_or_else(|| pids.iter().filter_map(|pid| process_rss(*pid)).sum());
        Ok(Usage {
            memory_bytes: memory,
            cpu_nanos: cpu,
            processes: u64::try_from(pids.len()).unwrap_or(u64::MAX),
        })
    }
}

fn v2_cpu(stat: &Path) -> Option<u64> {
    let text = fs::read_to_string(stat).ok()?;
    let micros = text
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "))?;
    micros.parse::<u64>().ok()?.checked_mul(1000)
}

/// CPU time of a process in nanoseconds, all threads, from `schedstat`.
fn process_cpu(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{}/schedstat", pid.as_raw_nonzero())).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// RSS of a process in bytes.
fn process_rss(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{}/statm", pid.as_raw_nonzero())).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    pages.checked_mul(page)
}
