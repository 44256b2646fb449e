//! Our groups: made, limited, entered, emptied and removed, below one root of our own in each tree.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::births::Births;
use super::layout::{Controller, Layout, Mode};
use super::settings::{self, Setting};
use crate::limits::Limits;

/// Where the kernel cannot kill a group by itself: how often it is gone through, and how long a
/// process may take to end that has been killed.
const MOST_ROUNDS: usize = 100;
const LONGEST_END: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("this machine has no control groups; mount them at /sys/fs/cgroup")]
    None,
    #[error("control group {} is there already", path.display())]
    Exists { path: PathBuf },
    #[error("this kernel has no {} controller, which the limit needs", controller.name())]
    NoController { controller: Controller },
    #[error("control groups of version 1 do not know {what}")]
    NotInV1 { what: &'static str },
    #[error("{} does not take {value:?}", path.display())]
    Refused {
        path: PathBuf,
        value: String,
        source: io::Error,
    },
    #[error("cannot {what} control group {}", path.display())]
    Failed {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

/// Every group is named by its path below the root, the same in all trees.
#[derive(Debug, Clone)]
pub struct Cgroups {
    pub(super) layout: Layout,
    pub(super) mode: Mode,
    pub(super) root: PathBuf,
}

impl Cgroups {
    /// `root` is a relative path of our own.
    pub fn new(layout: Layout, root: impl Into<PathBuf>) -> Result<Self, CgroupError> {
        let mode = layout.mode().ok_or(CgroupError::None)?;
        Ok(Self {
            layout,
            mode,
            root: root.into(),
        })
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Makes the group with these limits, or nothing at all. What it is nested in must be there.
    pub fn create(&self, group: &str, limits: &Limits) -> Result<(), CgroupError> {
        let settings = self.settings(limits)?;
        let made = self.make(group, &settings);
        if made.is_err() && !matches!(made, Err(CgroupError::Exists { .. })) {
            let _ = self.remove(group);
        }
        made
    }

    /// The same, in place of an empty one of that name: some kernels go on killing what is born
    /// in a group that was killed once. One that is not empty exists.
    pub fn create_anew(&self, group: &str, limits: &Limits) -> Result<(), CgroupError> {
        match self.create(group, limits) {
            Err(CgroupError::Exists { .. }) if self.remove_members(group).is_ok() => {
                self.create(group, limits)
            }
            made => made,
        }
    }

    /// Sets the limits of a group that is there: whoever made it may not have come that far.
    pub fn limit(&self, group: &str, limits: &Limits) -> Result<(), CgroupError> {
        self.set(group, &self.settings(limits)?)
    }

    fn settings(&self, limits: &Limits) -> Result<Vec<Setting>, CgroupError> {
        match self.mode {
            Mode::V2 => Ok(settings::v2(limits)),
            Mode::V1 | Mode::Hybrid => {
                settings::v1(limits).map_err(|what| CgroupError::NotInV1 { what })
            }
        }
    }

    fn make(&self, group: &str, settings: &[Setting]) -> Result<(), CgroupError> {
        // The tree that says who belongs to the group comes first: there it is exclusive.
        let members = self.members_tree();
        let path = self.path_in(&members, group);
        self.make_below_root(&members, &path)
            .map_err(|source| match source.kind() {
                io::ErrorKind::AlreadyExists => CgroupError::Exists { path: path.clone() },
                _ => failed("make", &path)(source),
            })?;
        self.set(group, settings)
    }

    fn set(&self, group: &str, settings: &[Setting]) -> Result<(), CgroupError> {
        let needed: BTreeSet<Controller> = settings.iter().map(|s| s.controller).collect();
        if self.mode == Mode::V2 {
            self.enable(&self.members_tree(), group, &needed)?;
        }
        for controller in needed {
            if self.mode != Mode::V2 {
                self.make_in_v1(controller, group)?;
            }
        }
        for setting in settings {
            let tree = self.tree_of(setting.controller)?;
            let file = self.path_in(&tree, group).join(setting.file);
            write(&file, &setting.value)?;
        }
        Ok(())
    }

    /// The root may go with the last of its groups while another is being made.
    fn make_below_root(&self, tree: &Path, path: &Path) -> io::Result<()> {
        let mut made = fs::create_dir(path);
        for _ in 0..MOST_ROUNDS {
            match &made {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    fs::create_dir_all(tree.join(&self.root))?;
                    made = fs::create_dir(path);
                    let parent = path.parent().is_some_and(Path::is_dir);
                    if made.is_err() && parent {
                        break;
                    }
                }
                _ => break,
            }
        }
        made
    }

    /// In v2 a controller works in a group when everything above hands it down.
    fn enable(
        &self,
        tree: &Path,
        group: &str,
        needed: &BTreeSet<Controller>,
    ) -> Result<(), CgroupError> {
        let path = self.path_in(tree, group);
        let above: Vec<&Path> = path
            .ancestors()
            .skip(1)
            .take_while(|above| above.starts_with(tree))
            .collect();
        for controller in needed {
            for above in above.iter().rev() {
                let file = above.join("cgroup.subtree_control");
                match write(&file, &format!("+{}", controller.name())) {
                    Err(CgroupError::Refused { source, .. })
                        if source.kind() == io::ErrorKind::NotFound && file.exists() =>
                    {
                        let controller = *controller;
                        return Err(CgroupError::NoController { controller });
                    }
                    written => written?,
                }
            }
        }
        Ok(())
    }

    fn make_in_v1(&self, controller: Controller, group: &str) -> Result<(), CgroupError> {
        let tree = self.tree_of(controller)?;
        let mut path = tree;
        for part in self.root.join(group).components() {
            let above = path.clone();
            path.push(part);
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed("make", &path)(error)),
                // A new cpuset is empty, and nothing can run in it.
                Ok(()) if controller == Controller::Cpuset => {
                    for file in ["cpuset.cpus", "cpuset.mems"] {
                        let value =
                            fs::read_to_string(above.join(file)).map_err(failed("read", &above))?;
                        write(&path.join(file), value.trim())?;
                    }
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    pub fn exists(&self, group: &str) -> bool {
        self.path_in(&self.members_tree(), group).is_dir()
    }

    /// Removes an empty group from all trees. One that is gone already is fine.
    pub fn remove(&self, group: &str) -> Result<(), CgroupError> {
        let members = self.members_tree();
        for tree in self.layout.v1.values().filter(|tree| **tree != members) {
            remove_directory(&self.path_in(tree, group))?;
        }
        self.remove_members(group)
    }

    /// The same for a group without limits, which is only where its members are.
    pub fn remove_members(&self, group: &str) -> Result<(), CgroupError> {
        remove_directory(&self.path_in(&self.members_tree(), group))
    }

    /// Makes a group that only holds others, if it is not there.
    pub fn create_outer(&self, group: &str) -> Result<(), CgroupError> {
        let path = self.path_in(&self.members_tree(), group);
        fs::create_dir_all(&path).map_err(failed("make", &path))
    }

    /// The groups directly inside one.
    pub fn inside(&self, group: &str) -> Vec<String> {
        let path = self.path_in(&self.members_tree(), group);
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let groups = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        groups
            .map(|inside| format!("{group}/{}", inside.file_name().to_string_lossy()))
            .collect()
    }

    /// Whether a process is in any group of ours, or may have been: one that has ended cannot be
    /// asked any more.
    pub fn is_inside(&self, pid: i32) -> bool {
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else {
            return true;
        };
        let root = Path::new("/").join(&self.root);
        let groups = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        groups.map(Path::new).any(|group| group.starts_with(&root))
    }

    /// The processes directly in the group.
    pub fn processes(&self, group: &str) -> Result<Vec<Pid>, CgroupError> {
        let file = self
            .path_in(&self.members_tree(), group)
            .join("cgroup.procs");
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if is_gone(&error) => return Ok(Vec::new()),
            Err(error) => return Err(failed("read", &file)(error)),
        };
        let pid = |line: &str| line.parse().ok().and_then(Pid::from_raw);
        Ok(text.lines().filter_map(pid).collect())
    }

    /// Handles of the processes directly in the group, and their numbers.
    pub fn handles(&self, group: &str) -> Result<Vec<(Pid, OwnedFd)>, CgroupError> {
        self.only_members(handles(self.processes(group)?), || self.processes(group))
    }

    /// A number that was read may have become somebody else's before there was a handle of it:
    /// only those count that are members still.
    fn only_members(
        &self,
        mut handles: Vec<(Pid, OwnedFd)>,
        members: impl FnOnce() -> Result<Vec<Pid>, CgroupError>,
    ) -> Result<Vec<(Pid, OwnedFd)>, CgroupError> {
        if !handles.is_empty() {
            let members: HashSet<Pid> = members()?.into_iter().collect();
            handles.retain(|(pid, _)| members.contains(pid));
        }
        Ok(handles)
    }

    /// Kills all processes of the group and of everything nested in it; those that are being born
    /// as well.
    pub fn kill(&self, group: &str) -> Result<(), CgroupError> {
        let path = self.path_in(&self.members_tree(), group);
        if !path.is_dir() {
            return Ok(());
        }
        if self.layout.unified.is_some() {
            match write(&path.join("cgroup.kill"), "1") {
                // An older kernel, or the group went with its last process.
                Err(CgroupError::Refused { source, .. }) if is_gone(&source) => {}
                killed => return killed,
            }
        }
        let births = Births::forbid(&path);
        let killed = self.kill_in_rounds(&path);
        births.allow();
        killed
    }

    /// Until nobody is left who could have made another.
    fn kill_in_rounds(&self, path: &Path) -> Result<(), CgroupError> {
        for _ in 0..MOST_ROUNDS {
            let all = self.processes_below(path)?;
            if all.is_empty() {
                return Ok(());
            }
            let still = |handles| self.only_members(handles, || self.processes_below(path));
            let handles = still(handles(all))?;
            for (_, handle) in &handles {
                let _ = pidfd_send_signal(handle, Signal::KILL);
            }
            for (_, ended) in handles {
                let mut waiting = [PollFd::new(&ended, PollFlags::IN)];
                let _ = poll(&mut waiting, Some(&LONGEST_END));
            }
        }
        Err(failed("empty", path)(io::ErrorKind::TimedOut.into()))
    }

    fn processes_below(&self, path: &Path) -> Result<Vec<Pid>, CgroupError> {
        let tree = self.members_tree();
        let own_root = tree.join(&self.root);
        let mut all = Vec::new();
        let mut open = vec![path.to_owned()];
        while let Some(at) = open.pop() {
            if let Ok(group) = at.strip_prefix(&own_root) {
                all.extend(self.processes(&group.to_string_lossy())?);
            }
            let nested = fs::read_dir(&at).into_iter().flatten().flatten();
            open.extend(
                nested
                    .map(|entry| entry.path())
                    .filter(|path| path.is_dir()),
            );
        }
        Ok(all)
    }

    /// The tree that says which processes belong together.
    pub(super) fn members_tree(&self) -> PathBuf {
        let first = || self.layout.v1.values().next().cloned().unwrap_or_default();
        let v1 = || {
            let pids = self.layout.v1.get(&Controller::Pids);
            pids.cloned().unwrap_or_else(first)
        };
        self.layout.unified.clone().unwrap_or_else(v1)
    }

    fn tree_of(&self, controller: Controller) -> Result<PathBuf, CgroupError> {
        let tree = match self.mode {
            Mode::V2 => self.layout.unified.clone(),
            Mode::V1 | Mode::Hybrid => self.layout.v1.get(&controller).cloned(),
        };
        tree.ok_or(CgroupError::NoController { controller })
    }

    pub(super) fn path_in(&self, tree: &Path, group: &str) -> PathBuf {
        tree.join(&self.root).join(group)
    }
}

/// Whether a group was removed while, or before, a file of it was in use.
fn is_gone(error: &io::Error) -> bool {
    let removed = rustix::io::Errno::NODEV.raw_os_error();
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(removed)
}

/// Of those that have not ended since.
fn handles(pids: Vec<Pid>) -> Vec<(Pid, OwnedFd)> {
    let handle = |pid| Some((pid, pidfd_open(pid, PidfdFlags::NONBLOCK).ok()?));
    pids.into_iter().filter_map(handle).collect()
}

fn remove_directory(path: &Path) -> Result<(), CgroupError> {
    match fs::remove_dir(path) {
        // The second is a file of the kernel's in a tree where we have no group.
        Err(error)
            if !matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Err(failed("remove", path)(error))
        }
        _ => Ok(()),
    }
}

pub(super) fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    let written = OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(value.as_bytes()));
    written.map_err(|source| CgroupError::Refused {
        path: path.to_owned(),
        value: value.to_owned(),
        source,
    })
}

pub(super) fn failed(
    what: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> CgroupError + use<> {
    let path = path.to_owned();
    move |source| CgroupError::Failed { what, path, source }
}
