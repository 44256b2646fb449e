//! Creation, limits and removal of cgroups.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::layout::{CgroupMode, Controller, Layout};
use super::settings::{self, Setting};
use crate::limits::Limits;

/// How often a creation is retried while another caller removes the root.
const MAX_CREATE_ROUNDS: usize = 100;

#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("this machine has no cgroups; mount them at /sys/fs/cgroup")]
    NotMounted,
    #[error("cgroup {} exists already", path.display())]
    Exists { path: PathBuf },
    #[error("the limit needs the {} controller, which this kernel does not have", controller.name())]
    NoController { controller: Controller },
    #[error("cgroup v1 does not support {what}")]
    NotInV1 { what: &'static str },
    #[error("cannot write {value:?} to {}", path.display())]
    Refused {
        path: PathBuf,
        value: String,
        source: io::Error,
    },
    #[error("cannot {operation} cgroup {}", path.display())]
    Failed {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

/// The cgroups below one root. A cgroup is named by its path below the root, the same in every
/// hierarchy.
#[derive(Debug, Clone)]
pub struct Cgroups {
    pub(super) layout: Layout,
    pub(super) mode: CgroupMode,
    pub(super) root: PathBuf,
}

impl Cgroups {
    /// `root` is a relative path that no other program uses.
    pub fn new(layout: Layout, root: impl Into<PathBuf>) -> Result<Self, CgroupError> {
        let mode = layout.mode().ok_or(CgroupError::NotMounted)?;
        Ok(Self {
            layout,
            mode,
            root: root.into(),
        })
    }

    pub fn mode(&self) -> CgroupMode {
        self.mode
    }

    /// Creates the cgroup with these limits, or nothing. Its parent must exist.
    pub fn create(&self, cgroup: &str, limits: &Limits) -> Result<(), CgroupError> {
        let settings = self.settings(limits)?;
        let created = self.create_with(cgroup, &settings);
        if created.is_err() && !matches!(created, Err(CgroupError::Exists { .. })) {
            let _ = self.remove(cgroup);
        }
        created
    }

    /// Creates the cgroup, replacing an empty one of that name: some kernels keep killing what
    /// is forked into a cgroup after `cgroup.kill`. Fails with `Exists` if that one is populated.
    pub fn recreate(&self, cgroup: &str, limits: &Limits) -> Result<(), CgroupError> {
        match self.create(cgroup, limits) {
            Err(CgroupError::Exists { .. }) if self.remove_membership(cgroup).is_ok() => {
                self.create(cgroup, limits)
            }
            created => created,
        }
    }

    /// Sets the limits of a cgroup that exists: its creator may have died before it set them.
    pub fn set_limits(&self, cgroup: &str, limits: &Limits) -> Result<(), CgroupError> {
        self.apply(cgroup, &self.settings(limits)?)
    }

    fn settings(&self, limits: &Limits) -> Result<Vec<Setting>, CgroupError> {
        match self.mode {
            CgroupMode::V2 => Ok(settings::v2(limits)),
            CgroupMode::V1 | CgroupMode::Hybrid => {
                settings::v1(limits).map_err(|what| CgroupError::NotInV1 { what })
            }
        }
    }

    fn create_with(&self, cgroup: &str, settings: &[Setting]) -> Result<(), CgroupError> {
        // The membership hierarchy comes first: its mkdir decides between two creators.
        let hierarchy = self.membership_hierarchy();
        let path = self.path_in(&hierarchy, cgroup);
        self.create_below_root(&hierarchy, &path)
            .map_err(|source| match source.kind() {
                io::ErrorKind::AlreadyExists => CgroupError::Exists { path: path.clone() },
                _ => failed("create", &path)(source),
            })?;
        self.apply(cgroup, settings)
    }

    fn apply(&self, cgroup: &str, settings: &[Setting]) -> Result<(), CgroupError> {
        let needed: BTreeSet<Controller> = settings.iter().map(|s| s.controller).collect();
        if self.mode == CgroupMode::V2 {
            self.enable(&self.membership_hierarchy(), cgroup, &needed)?;
        } else {
            for controller in needed {
                self.create_in_v1(controller, cgroup)?;
            }
        }
        for setting in settings {
            let hierarchy = self.hierarchy_of(setting.controller)?;
            let file = self.path_in(&hierarchy, cgroup).join(setting.file);
            write(&file, &setting.value)?;
        }
        Ok(())
    }

    /// Retries while the root is removed with its last cgroup by another caller.
    fn create_below_root(&self, hierarchy: &Path, path: &Path) -> io::Result<()> {
        let mut created = fs::create_dir(path);
        for _ in 0..MAX_CREATE_ROUNDS {
            match &created {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    fs::create_dir_all(hierarchy.join(&self.root))?;
                    created = fs::create_dir(path);
                    let has_parent = path.parent().is_some_and(Path::is_dir);
                    if created.is_err() && has_parent {
                        break;
                    }
                }
                _ => break,
            }
        }
        created
    }

    /// Enables controllers in `cgroup.subtree_control` of all ancestors, as cgroup v2 requires.
    fn enable(
        &self,
        hierarchy: &Path,
        cgroup: &str,
        needed: &BTreeSet<Controller>,
    ) -> Result<(), CgroupError> {
        let path = self.path_in(hierarchy, cgroup);
        let ancestors: Vec<&Path> = path
            .ancestors()
            .skip(1)
            .take_while(|ancestor| ancestor.starts_with(hierarchy))
            .collect();
        for controller in needed {
            for ancestor in ancestors.iter().rev() {
                let file = ancestor.join("cgroup.subtree_control");
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

    fn create_in_v1(&self, controller: Controller, cgroup: &str) -> Result<(), CgroupError> {
        let mut path = self.hierarchy_of(controller)?;
        for part in self.root.join(cgroup).components() {
            let parent = path.clone();
            path.push(part);
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed("create", &path)(error)),
                // A new v1 cpuset is empty, and no process can enter it.
                Ok(()) if controller == Controller::Cpuset => {
                    for file in ["cpuset.cpus", "cpuset.mems"] {
                        let value = fs::read_to_string(parent.join(file))
                            .map_err(failed("read", &parent))?;
                        write(&path.join(file), value.trim())?;
                    }
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    pub fn exists(&self, cgroup: &str) -> bool {
        self.path_in(&self.membership_hierarchy(), cgroup).is_dir()
    }

    /// Removes an empty cgroup from all hierarchies. Succeeds if there is none.
    pub fn remove(&self, cgroup: &str) -> Result<(), CgroupError> {
        let membership = self.membership_hierarchy();
        let hierarchies = self.layout.v1.values();
        for hierarchy in hierarchies.filter(|hierarchy| **hierarchy != membership) {
            remove_directory(&self.path_in(hierarchy, cgroup))?;
        }
        self.remove_membership(cgroup)
    }

    /// Removes an empty cgroup without limits, which exists in the membership hierarchy alone.
    pub fn remove_membership(&self, cgroup: &str) -> Result<(), CgroupError> {
        remove_directory(&self.path_in(&self.membership_hierarchy(), cgroup))
    }

    /// Creates a cgroup that only holds other cgroups. Succeeds if it exists.
    pub fn create_inner_node(&self, cgroup: &str) -> Result<(), CgroupError> {
        let path = self.path_in(&self.membership_hierarchy(), cgroup);
        fs::create_dir_all(&path).map_err(failed("create", &path))
    }

    /// Lists the child cgroups.
    pub fn children(&self, cgroup: &str) -> Vec<String> {
        let path = self.path_in(&self.membership_hierarchy(), cgroup);
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let children = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        children
            .map(|child| format!("{cgroup}/{}", child.file_name().to_string_lossy()))
            .collect()
    }

    /// The hierarchy that decides which processes belong together: v2 where it is mounted, else
    /// v1 pids.
    pub(super) fn membership_hierarchy(&self) -> PathBuf {
        let first = || self.layout.v1.values().next().cloned().unwrap_or_default();
        let v1 = || {
            let pids = self.layout.v1.get(&Controller::Pids);
            pids.cloned().unwrap_or_else(first)
        };
        self.layout.unified.clone().unwrap_or_else(v1)
    }

    fn hierarchy_of(&self, controller: Controller) -> Result<PathBuf, CgroupError> {
        let hierarchy = match self.mode {
            CgroupMode::V2 => self.layout.unified.clone(),
            CgroupMode::V1 | CgroupMode::Hybrid => self.layout.v1.get(&controller).cloned(),
        };
        hierarchy.ok_or(CgroupError::NoController { controller })
    }

    pub(super) fn path_in(&self, hierarchy: &Path, cgroup: &str) -> PathBuf {
        hierarchy.join(&self.root).join(cgroup)
    }
}

/// Returns whether the cgroup of a file was removed before or during its use.
pub(super) fn is_gone(error: &io::Error) -> bool {
    let removed = rustix::io::Errno::NODEV.raw_os_error();
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(removed)
}

fn remove_directory(path: &Path) -> Result<(), CgroupError> {
    match fs::remove_dir(path) {
        // NotADirectory: a kernel file of that name in a hierarchy where we have no cgroup.
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
    operation: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> CgroupError + use<> {
    let path = path.to_owned();
    move |source| CgroupError::Failed {
        operation,
        path,
        source,
    }
}
