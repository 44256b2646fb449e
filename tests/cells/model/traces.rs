//! Traces of cells on the machine: processes, cgroups, files and mounts. A test fails if it leaves
//! any.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use mainstay_testkit::wait_until_exited;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

pub(in crate::cells) struct Traces {
    /// The cgroup below which all of the node's are.
    root: String,
    /// The mount points of the cgroup hierarchies, v1 and v2.
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

    /// The cgroups of a cell.
    pub(in crate::cells) fn groups_of(&self, cell: &str) -> Vec<PathBuf> {
        let group = |tree: &PathBuf| tree.join(&self.root).join(cell);
        self.trees
            .iter()
            .map(group)
            .filter(|group| group.exists())
            .collect()
    }

    /// The CPU limit of a cell in the kernel: `cpu.shares` of v1, or `cpu.weight` of v2.
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

    /// Waits until every process in our cgroups has exited.
    pub(in crate::cells) fn until_exited(&self) {
        for (pid, description) in self.processes() {
            if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) {
                assert!(wait_until_exited(&pidfd), "still there: {description}");
            }
        }
    }

    pub(in crate::cells) fn assert_none(&self, state: &Path) {
        let left = self.processes();
        assert!(left.is_empty(), "processes are left: {left:?}");
        let left = self.groups_of("");
        assert!(left.is_empty(), "cgroups are left: {left:?}");
        for directory in ["cells", "executables", "logs"] {
            let entries = fs::read_dir(state.join("cells").join(directory)).unwrap();
            let left: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
            assert!(left.is_empty(), "files are left: {left:?}");
        }
        let mounts = mounts();
        let new: Vec<&String> = mounts.difference(&self.mounts).collect();
        assert!(new.is_empty(), "mounts are left: {new:?}");
    }

    /// The processes in our cgroups, shims included, with a description.
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
            // A zombie has exited and only waits to be reaped.
            if is_ours(&groups) && !status.contains("\nState:\tZ") && !status.is_empty() {
                let name = status.lines().next().unwrap_or_default();
                let pid = Pid::from_raw(pid).unwrap();
                processes.push((pid, format!("{pid:?} {name}: {groups}")));
            }
        }
        processes
    }
}

/// Pidfds of the children of a process.
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

fn trees() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let tree = |line: &str| {
        let (mount, source) = line.split_once(" - ")?;
        let is_tree = source.starts_with("cgroup ") || source.starts_with("cgroup2 ");
        is_tree.then(|| PathBuf::from(mount.split(' ').nth(4).unwrap()))
    };
    text.lines().filter_map(tree).collect()
}

/// The mounts where cells mount something; others may mount elsewhere while this test runs.
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
