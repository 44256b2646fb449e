//! What cells leave on a machine. Nothing, or the test fails; and then it is removed all the same.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::harness::PATIENCE;

pub(in crate::cells) struct Traces {
    /// The control group below which all of the node's are.
    root: String,
    /// Where control groups are mounted, of either version.
    trees: Vec<PathBuf>,
    /// The mounts of the host before there was any cell.
    mounts: BTreeSet<String>,
}

impl Traces {
    pub(in crate::cells) fn before(root: &str) -> Self {
        Self {
            root: root.to_owned(),
            trees: trees(),
            mounts: mounts(),
        }
    }

    /// The processes of an executable.
    pub(in crate::cells) fn processes_of(&self, cell: &str, executable: &str) -> Vec<String> {
        let group = |tree: &PathBuf| {
            let group = tree.join(&self.root).join(cell);
            let procs = fs::read_to_string(group.join(format!("_{executable}/cgroup.procs")));
            procs.unwrap_or_default()
        };
        let procs: Vec<String> = self.trees.iter().map(group).collect();
        procs
            .iter()
            .flat_map(|procs| procs.lines())
            .map(str::to_owned)
            .collect()
    }

    /// The control groups of a cell.
    pub(in crate::cells) fn groups_of(&self, cell: &str) -> Vec<PathBuf> {
        let group = |tree: &PathBuf| tree.join(&self.root).join(cell);
        self.trees
            .iter()
            .map(group)
            .filter(|group| group.exists())
            .collect()
    }

    /// What the kernel limits a cell to: the shares of version 1, or the weight of version 2.
    pub(in crate::cells) fn cpu_limits_of(&self, cell: &str) -> (Option<u64>, Option<u64>) {
        let groups = self.groups_of(cell);
        let number = |file: &str| {
            groups.iter().find_map(|group| {
                let text = fs::read_to_string(group.join(file)).ok()?;
                text.trim().parse().ok()
            })
        };
        (number("cpu.shares"), number("cpu.weight"))
    }

    pub(in crate::cells) fn assert_none(&self, state: &Path) {
        let left = self.processes();
        assert!(left.is_empty(), "processes are left: {left:?}");
        let left = self.groups_of("");
        assert!(left.is_empty(), "control groups are left: {left:?}");
        for directory in ["cells", "executables", "logs"] {
            let entries = fs::read_dir(state.join("cells").join(directory)).unwrap();
            let left: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
            assert!(left.is_empty(), "files are left: {left:?}");
        }
        let mounts = mounts();
        let new: Vec<&String> = mounts.difference(&self.mounts).collect();
        assert!(new.is_empty(), "mounts are left: {new:?}");
    }

    /// All that live in a group of ours, shims included: their numbers and what they are.
    fn processes(&self) -> Vec<(Pid, String)> {
        let root = Path::new("/").join(&self.root);
        let is_ours = |text: &str| {
            let groups = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
            groups.map(Path::new).any(|group| group.starts_with(&root))
        };
        let mut processes = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let groups = fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
            let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            // What only waits for its parent to look at it has ended.
            if is_ours(&groups) && !status.contains("\nState:\tZ") && !status.is_empty() {
                let name = status.lines().next().unwrap_or_default();
                let pid = Pid::from_raw(pid).unwrap();
                processes.push((pid, format!("{pid:?} {name}: {groups}")));
            }
        }
        processes
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        // Whoever is being born meanwhile is found by the next round.
        loop {
            let processes = self.processes();
            if processes.is_empty() {
                break;
            }
            for (pid, _) in processes {
                if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
                    let _ = pidfd_send_signal(&process, Signal::KILL);
                    until_ended(&process);
                }
            }
        }
        for tree in &self.trees {
            remove(&tree.join(&self.root));
        }
    }
}

/// Handles of the processes that a process has started itself.
pub(in crate::cells) fn children_of(pid: u32) -> Vec<OwnedFd> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let child = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if status.contains(&format!("\nPPid:\t{pid}\n"))
            && let Some(child) = child.and_then(Pid::from_raw)
            && let Ok(handle) = pidfd_open(child, PidfdFlags::empty())
        {
            children.push(handle);
        }
    }
    children
}

/// Waits for the end of a process; false if it does not come.
pub(in crate::cells) fn until_ended(process: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    let bound = Timespec {
        tv_sec: PATIENCE.as_secs().try_into().unwrap(),
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&bound)).unwrap() > 0
}

fn remove(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}

fn trees() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let tree = |line: &str| {
        let (mount, source) = line.split_once(" - ")?;
        let is_tree = source.starts_with("cgroup ") || source.starts_with("cgroup2 ");
        is_tree.then(|| PathBuf::from(mount.split(' ').nth(4).unwrap()))
    };
    text.lines().filter_map(tree).collect()
}

/// Where cells mount something, and in temporary directories; others may mount elsewhere while
/// this test runs.
fn mounts() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let is_ours = |line: &&str| {
        let point = line.split(' ').nth(4).unwrap_or_default();
        ["/proc", "/dev", "/sys", "/state"]
            .iter()
            .any(|part| point.contains(part))
    };
    text.lines().filter(is_ours).map(str::to_owned).collect()
}
