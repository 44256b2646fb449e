//! The processes of a cgroup: listed, held by pidfd, killed.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::cgroups::{CgroupError, Cgroups, failed, is_gone, write};
use super::pids_limit::ForkBlock;

/// How often the processes are listed and killed where the kernel has no `cgroup.kill`.
const MAX_KILL_ROUNDS: usize = 100;
/// How long a killed process may take to exit before the next round.
const EXIT_TIMEOUT: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

impl Cgroups {
    /// Returns whether a process is in any cgroup of ours.
    ///
    /// True as well if the process has exited, because it has no cgroup then.
    pub fn contains(&self, pid: i32) -> bool {
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else {
            return true;
        };
        let root = Path::new("/").join(&self.root);
        let cgroups = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        cgroups
            .map(Path::new)
            .any(|cgroup| cgroup.starts_with(&root))
    }

    /// Returns the cgroup of ours that a process or thread is in; `None` if it has exited.
    pub fn cgroup_of(&self, pid: i32) -> Option<String> {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let root = Path::new("/").join(&self.root);
        let mut cgroups = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        let below = cgroups.find_map(|cgroup| Path::new(cgroup).strip_prefix(&root).ok())?;
        Some(below.to_string_lossy().into_owned())
    }

    /// Lists the processes directly in the cgroup.
    pub fn processes(&self, cgroup: &str) -> Result<Vec<Pid>, CgroupError> {
        let file = self
            .path_in(&self.membership_hierarchy(), cgroup)
            .join("cgroup.procs");
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if is_gone(&error) => return Ok(Vec::new()),
            Err(error) => return Err(failed("read", &file)(error)),
        };
        let pid = |line: &str| line.parse().ok().and_then(Pid::from_raw);
        Ok(text.lines().filter_map(pid).collect())
    }

    /// Opens pidfds of the processes directly in the cgroup.
    pub fn pidfds(&self, cgroup: &str) -> Result<Vec<(Pid, OwnedFd)>, CgroupError> {
        retain_members(open_pidfds(self.processes(cgroup)?), || {
            self.processes(cgroup)
        })
    }

    /// Kills all processes of the cgroup and its descendants, those that are being forked too.
    pub fn kill(&self, cgroup: &str) -> Result<(), CgroupError> {
        let path = self.path_in(&self.membership_hierarchy(), cgroup);
        if !path.is_dir() {
            return Ok(());
        }
        if self.layout.unified.is_some() {
            match write(&path.join("cgroup.kill"), "1") {
                // A kernel before 5.14, or the cgroup was removed meanwhile.
                Err(CgroupError::Refused { source, .. }) if is_gone(&source) => {}
                killed => return killed,
            }
        }
        let block = ForkBlock::set(&path);
        let killed = self.kill_in_rounds(&path);
        block.lift();
        killed
    }

    fn kill_in_rounds(&self, path: &Path) -> Result<(), CgroupError> {
        for _ in 0..MAX_KILL_ROUNDS {
            let pids = self.processes_below(path)?;
            if pids.is_empty() {
                return Ok(());
            }
            let members = || self.processes_below(path);
            let pidfds = retain_members(open_pidfds(pids), members)?;
            for (_, pidfd) in &pidfds {
                let _ = pidfd_send_signal(pidfd, Signal::KILL);
            }
            for (_, pidfd) in pidfds {
                let mut exited = [PollFd::new(&pidfd, PollFlags::IN)];
                let _ = poll(&mut exited, Some(&EXIT_TIMEOUT));
            }
        }
        Err(failed("empty", path)(io::ErrorKind::TimedOut.into()))
    }

    fn processes_below(&self, path: &Path) -> Result<Vec<Pid>, CgroupError> {
        let own_root = self.membership_hierarchy().join(&self.root);
        let mut pids = Vec::new();
        let mut unvisited = vec![path.to_owned()];
        while let Some(at) = unvisited.pop() {
            if let Ok(cgroup) = at.strip_prefix(&own_root) {
                pids.extend(self.processes(&cgroup.to_string_lossy())?);
            }
            let entries = fs::read_dir(&at).into_iter().flatten().flatten();
            unvisited.extend(
                entries
                    .map(|entry| entry.path())
                    .filter(|path| path.is_dir()),
            );
        }
        Ok(pids)
    }
}

/// Drops pidfds of processes that are no members: a PID may have been reused between the read of
/// `cgroup.procs` and `pidfd_open`.
fn retain_members(
    mut pidfds: Vec<(Pid, OwnedFd)>,
    members: impl FnOnce() -> Result<Vec<Pid>, CgroupError>,
) -> Result<Vec<(Pid, OwnedFd)>, CgroupError> {
    if !pidfds.is_empty() {
        let members: HashSet<Pid> = members()?.into_iter().collect();
        pidfds.retain(|(pid, _)| members.contains(pid));
    }
    Ok(pidfds)
}

/// Opens pidfds of the processes that have not been reaped yet.
fn open_pidfds(pids: Vec<Pid>) -> Vec<(Pid, OwnedFd)> {
    let open = |pid| Some((pid, pidfd_open(pid, PidfdFlags::NONBLOCK).ok()?));
    pids.into_iter().filter_map(open).collect()
}
