//! The cgroup layout of this machine: one hierarchy for everything (v2), one per controller (v1), or
//! both (hybrid).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use mainstay_mounts::Mount;

/// A controller that cells use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    Cpu,
    Cpuset,
    Memory,
    Pids,
    Cpuacct,
    Freezer,
    Io,
}

/// The cgroup versions in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupMode {
    V1,
    V2,
    /// v1 controllers, and a v2 hierarchy without controllers that tracks membership.
    Hybrid,
}

/// The mount points of all hierarchies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// Mount point of the v2 hierarchy.
    pub unified: Option<PathBuf>,
    /// Mount point of each controller's v1 hierarchy.
    pub v1: BTreeMap<Controller, PathBuf>,
}

impl Layout {
    /// Reads the layout from the mount table of this process.
    pub fn detect() -> io::Result<Self> {
        Ok(Self::new(mainstay_mounts::read()?))
    }

    fn new(mounts: Vec<Mount>) -> Self {
        let mut layout = Self::default();
        // Only whole hierarchies: a bind mount of a part of one is not usable.
        for mount in mounts.into_iter().filter(|m| m.root == Path::new("/")) {
            match mount.fs_type.as_str() {
                "cgroup2" => {
                    layout.unified.get_or_insert(mount.target);
                }
                "cgroup" => {
                    for controller in mount
                        .options
                        .split(',')
                        .filter_map(Controller::from_v1_name)
                    {
                        let target = || mount.target.clone();
                        layout.v1.entry(controller).or_insert_with(target);
                    }
                }
                _ => {}
            }
        }
        layout
    }

    pub fn mode(&self) -> Option<CgroupMode> {
        match (&self.unified, self.v1.is_empty()) {
            (Some(_), true) => Some(CgroupMode::V2),
            (Some(_), false) => Some(CgroupMode::Hybrid),
            (None, false) => Some(CgroupMode::V1),
            (None, true) => None,
        }
    }
}

impl Controller {
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cpuset => "cpuset",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpuacct => "cpuacct",
            Self::Freezer => "freezer",
            Self::Io => "io",
        }
    }

    /// The name as a v1 mount option.
    fn v1_name(self) -> &'static str {
        match self {
            Self::Io => "blkio",
            other => other.name(),
        }
    }

    fn from_v1_name(name: &str) -> Option<Self> {
        let all = [
            Self::Cpu,
            Self::Cpuset,
            Self::Memory,
            Self::Pids,
            Self::Cpuacct,
            Self::Freezer,
            Self::Io,
        ];
        all.into_iter()
            .find(|controller| controller.v1_name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(mountinfo: &str) -> Layout {
        Layout::new(mainstay_mounts::parse(mountinfo.as_bytes()))
    }

    const HYBRID: &str = "\
22 1 0:21 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
23 22 0:22 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
24 22 0:23 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
28 22 0:28 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
25 22 0:24 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
26 22 0:25 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
27 22 0:25 /inner /elsewhere rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn v1_v2_and_hybrid_layouts_are_distinguished() {
        let hybrid = layout(HYBRID);
        assert_eq!(hybrid.mode(), Some(CgroupMode::Hybrid));
        assert_eq!(
            hybrid.unified.as_deref(),
            Some(Path::new("/sys/fs/cgroup/unified"))
        );
        let cpu = Path::new("/sys/fs/cgroup/cpu,cpuacct");
        assert_eq!(hybrid.v1[&Controller::Cpu], cpu);
        assert_eq!(hybrid.v1[&Controller::Cpuacct], cpu);
        let io = Path::new("/sys/fs/cgroup/blkio");
        assert_eq!(hybrid.v1[&Controller::Io], io);
        assert!(!hybrid.v1.contains_key(&Controller::Pids));

        let v2 = "30 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(layout(v2).mode(), Some(CgroupMode::V2));
        let v1: String = HYBRID.lines().take(3).map(|l| format!("{l}\n")).collect();
        assert_eq!(layout(&v1).mode(), Some(CgroupMode::V1));
        assert_eq!(layout("").mode(), None);
    }

    #[test]
    fn this_machine_has_cgroups() {
        assert!(Layout::detect().unwrap().mode().is_some());
    }
}
