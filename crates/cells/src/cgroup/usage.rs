//! What a group uses: as the kernel counts it, or, where no controller does, as its processes say.

use std::fs;
use std::path::Path;

use rustix::process::Pid;

use super::groups::{CgroupError, Cgroups};
use super::layout::Controller;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub memory_bytes: u64,
    pub cpu_nanos: u64,
    pub processes: u64,
}

impl Cgroups {
    /// A group that is gone uses nothing.
    pub fn usage(&self, group: &str) -> Result<Usage, CgroupError> {
        let pids = self.processes(group)?;
        let number =
            |path: &Path| -> Option<u64> { fs::read_to_string(path).ok()?.trim().parse().ok() };
        let v1 = |controller, file: &str| {
            let tree = self.layout.v1.get(&controller)?;
            number(&self.path_in(tree, group).join(file))
        };
        let members = self.path_in(&self.members_tree(), group);
        let cpu = v1(Controller::Cpuacct, "cpuacct.usage")
            .or_else(|| cpu_of_v2(&members.join("cpu.stat")))
            .unwrap_or_else(|| pids.iter().filter_map(|pid| cpu_of(*pid)).sum());
        let memory = v1(Controller::Memory, "memory.usage_in_bytes")
            .or_else(|| number(&members.join("memory.current")))
            .unwrap_or_else(|| pids.iter().filter_map(|pid| resident(*pid)).sum());
        Ok(Usage {
            memory_bytes: memory,
            cpu_nanos: cpu,
            processes: u64::try_from(pids.len()).unwrap_or(u64::MAX),
        })
    }
}

fn cpu_of_v2(stat: &Path) -> Option<u64> {
    let text = fs::read_to_string(stat).ok()?;
    let micros = text
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "))?;
    micros.parse::<u64>().ok()?.checked_mul(1000)
}

/// The sum of its threads, in nanoseconds, as the scheduler has it.
fn cpu_of(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{}/schedstat", pid.as_raw_nonzero())).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn resident(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{}/statm", pid.as_raw_nonzero())).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    pages.checked_mul(page)
}
