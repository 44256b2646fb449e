//! The cgroups of the machine with their usage and pressure, of v1, v2 and hybrid layouts.
//!
//! A v1 or hybrid layout has several hierarchies; a path stands for the same path of all of them.

mod parse;
mod usage;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use mainstay_mounts::Mount;

pub use usage::{Cpu, Io, Memory, Pids, Pressure, Stall, Usage};

/// Longer paths are refused; the kernel has a limit of this size too.
const MAX_PATH_BYTES: usize = 4096;

/// The layout of the hierarchies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    V1,
    V2,
    Hybrid,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
            Self::Hybrid => "hybrid",
        }
    }
}

/// A cgroup.
#[derive(Debug, Clone, PartialEq)]
pub struct Cgroup {
    /// The path below the root, as the kernel shows it: `/system.slice`.
    pub path: String,
    /// Levels below the cgroup that was asked for.
    pub depth: u32,
    pub usage: Usage,
}

/// The cgroups that were asked for, each after its parent.
#[derive(Debug, Clone, PartialEq)]
pub struct Tree {
    pub mode: Mode,
    pub cgroups: Vec<Cgroup>,
    /// True if there are more.
    pub truncated: bool,
}

/// A selection of cgroups.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Relative to the root.
    path: PathBuf,
    max_depth: u32,
    max_cgroups: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum CgroupsError {
    #[error("{0:?} is not the path of a cgroup; write it as /system.slice")]
    BadPath(String),
    #[error("cgroup {0} not found")]
    NotFound(String),
    #[error("no cgroup hierarchy is mounted")]
    NoHierarchy,
    #[error("cannot read the cgroups")]
    Io(#[from] io::Error),
}

impl Selection {
    /// Selects a cgroup and `depth` levels below it; 0 means all. At most `max_cgroups` are read.
    pub fn new(path: &str, depth: u32, max_cgroups: usize) -> Result<Self, CgroupsError> {
        let bad = || CgroupsError::BadPath(path.chars().take(128).collect());
        let absolute = Path::new(path);
        let mut relative = PathBuf::new();
        for component in absolute.components() {
            match component {
                Component::RootDir => {}
                Component::Normal(name) => relative.push(name),
                _ => return Err(bad()),
            }
        }
        let acceptable = path.is_empty() || absolute.is_absolute();
        if !acceptable || path.len() > MAX_PATH_BYTES || path.contains('\0') {
            return Err(bad());
        }
        Ok(Self {
            path: relative,
            max_depth: if depth == 0 { u32::MAX } else { depth },
            max_cgroups,
        })
    }

    /// Reads the cgroups, siblings sorted by name. One that is removed meanwhile is left out.
    pub fn read(&self) -> Result<Tree, CgroupsError> {
        Hierarchies::new(&mainstay_mounts::read()?).read(self)
    }
}

/// The hierarchies and where they are mounted.
#[derive(Debug, Default)]
struct Hierarchies {
    unified: Option<PathBuf>,
    /// Of v1, each with its controllers.
    v1: Vec<(Vec<String>, PathBuf)>,
}

/// The directories of one cgroup in all hierarchies that have it.
#[derive(Debug)]
struct Directories {
    unified: Option<PathBuf>,
    v1: Vec<(Vec<String>, PathBuf)>,
}

impl Hierarchies {
    fn new(mounts: &[Mount]) -> Self {
        let mut found = Self::default();
        // A bind mount of a part shows no more than the whole.
        for mount in mounts.iter().filter(|mount| mount.root == Path::new("/")) {
            match mount.fs_type.as_str() {
                "cgroup2" if found.unified.is_none() => {
                    found.unified = Some(mount.target.clone());
                }
                "cgroup" => {
                    let words: Vec<String> = mount.options.split(',').map(str::to_owned).collect();
                    if !found.v1.iter().any(|(known, _)| *known == words) {
                        found.v1.push((words, mount.target.clone()));
                    }
                }
                _ => {}
            }
        }
        found
    }

    fn mode(&self) -> Option<Mode> {
        match (&self.unified, self.v1.is_empty()) {
            (Some(_), true) => Some(Mode::V2),
            (Some(_), false) => Some(Mode::Hybrid),
            (None, false) => Some(Mode::V1),
            (None, true) => None,
        }
    }

    fn read(&self, selection: &Selection) -> Result<Tree, CgroupsError> {
        let mode = self.mode().ok_or(CgroupsError::NoHierarchy)?;
        let mut tree = Tree {
            mode,
            cgroups: Vec::new(),
            truncated: false,
        };
        if !self.at(&selection.path).exists() {
            let path = shown(&selection.path);
            return Err(CgroupsError::NotFound(path));
        }
        let mut pending = vec![(selection.path.clone(), 0)];
        while let Some((path, depth)) = pending.pop() {
            if tree.cgroups.len() >= selection.max_cgroups {
                tree.truncated = true;
                break;
            }
            let directories = self.at(&path);
            if !directories.exists() {
                continue;
            }
            if depth < selection.max_depth {
                // The last is taken first.
                let children = directories.children().into_iter().rev();
                pending.extend(children.map(|name| (path.join(name), depth + 1)));
            }
            tree.cgroups.push(Cgroup {
                path: shown(&path),
                depth,
                usage: directories.usage(),
            });
        }
        Ok(tree)
    }

    fn at(&self, path: &Path) -> Directories {
        let there = |root: &PathBuf| {
            let dir = root.join(path);
            dir.is_dir().then_some(dir)
        };
        let v1 = self.v1.iter();
        Directories {
            unified: self.unified.as_ref().and_then(there),
            v1: v1
                .filter_map(|(controllers, root)| Some((controllers.clone(), there(root)?)))
                .collect(),
        }
    }
}

impl Directories {
    fn exists(&self) -> bool {
        self.unified.is_some() || !self.v1.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        let v1 = self.v1.iter().map(|(_, dir)| dir);
        self.unified.iter().chain(v1)
    }

    /// The names of the cgroups below, of all hierarchies.
    fn children(&self) -> BTreeSet<OsString> {
        self.all()
            .filter_map(|dir| fs::read_dir(dir).ok())
            .flatten()
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.file_name())
            .collect()
    }
}

fn shown(path: &Path) -> String {
    format!("/{}", path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(fs_type: &str, target: &Path, options: &str) -> Mount {
        Mount {
            device: "0:1".to_owned(),
            flags: "rw".to_owned(),
            root: PathBuf::from("/"),
            target: target.to_owned(),
            fs_type: fs_type.to_owned(),
            source: fs_type.to_owned(),
            options: options.to_owned(),
        }
    }

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (file, text) in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    fn paths(tree: &Tree) -> Vec<(&str, u32)> {
        let cgroups = tree.cgroups.iter();
        cgroups.map(|one| (one.path.as_str(), one.depth)).collect()
    }

    #[test]
    fn v2_is_walked_in_order_with_depth_and_bound() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["b/y", "b/x", "a"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        let hierarchies = Hierarchies::new(&[mount("cgroup2", dir.path(), "rw")]);
        let read = |path: &str, depth: u32, max: usize| {
            hierarchies.read(&Selection::new(path, depth, max).unwrap())
        };
        let all = read("", 0, 100).unwrap();
        assert_eq!(
            paths(&all),
            [("/", 0), ("/a", 1), ("/b", 1), ("/b/x", 2), ("/b/y", 2)]
        );
        assert_eq!((all.mode, all.truncated), (Mode::V2, false));
        assert_eq!(paths(&read("/", 1, 100).unwrap()).len(), 3);
        let below = read("/b", 0, 100).unwrap();
        assert_eq!(paths(&below), [("/b", 0), ("/b/x", 1), ("/b/y", 1)]);
        let cut = read("/", 0, 2).unwrap();
        assert!(cut.truncated && cut.cgroups.len() == 2);
        assert!(matches!(read("/no", 0, 9), Err(CgroupsError::NotFound(_))));
    }

    #[test]
    fn usage_of_v2_is_read_with_limits_and_pressure() {
        let dir = tempfile::tempdir().unwrap();
        write(
            dir.path(),
            &[
                ("a/cgroup.procs", "1\n22\n"),
                (
                    "a/cpu.stat",
                    "usage_usec 5\nuser_usec 2\nsystem_usec 3\nnr_periods 7\nnr_throttled 1\nthrottled_usec 9\n",
                ),
                ("a/cpu.max", "50000 100000\n"),
                ("a/memory.current", "4096\n"),
                ("a/memory.max", "max\n"),
                ("a/memory.stat", "anon 10\nfile 20\n"),
                ("a/memory.swap.current", "3\n"),
                ("a/memory.events", "low 0\noom_kill 2\n"),
                ("a/pids.current", "2\n"),
                ("a/pids.max", "10\n"),
                (
                    "a/io.stat",
                    "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0\n8:16 rbytes=10 wbytes=20 rios=30 wios=40\n",
                ),
                (
                    "a/cpu.pressure",
                    "some avg10=1.50 avg60=0.20 avg300=0.03 total=123\nfull avg10=0.10 avg60=0.00 avg300=0.00 total=4\n",
                ),
            ],
        );
        let hierarchies = Hierarchies::new(&[mount("cgroup2", dir.path(), "rw")]);
        let tree = hierarchies
            .read(&Selection::new("/a", 0, 9).unwrap())
            .unwrap();
        let usage = &tree.cgroups[0].usage;
        assert_eq!(usage.processes, 2);
        let cpu = usage.cpu.unwrap();
        assert_eq!(
            (cpu.usage_nanos, cpu.throttled_nanos, cpu.limit),
            (5000, 9000, Some(0.5))
        );
        let memory = usage.memory.unwrap();
        assert_eq!((memory.current_bytes, memory.limit_bytes), (4096, None));
        assert_eq!((memory.swap_bytes, memory.oom_kills), (3, 2));
        assert_eq!(usage.pids.unwrap().limit, Some(10));
        let io = usage.io.unwrap();
        assert_eq!(
            (io.read_bytes, io.written_bytes, io.reads, io.writes),
            (11, 22, 33, 44)
        );
        let pressure = usage.cpu_pressure.unwrap();
        assert_eq!((pressure.some.avg10, pressure.full.total_micros), (1.5, 4));
        assert_eq!(usage.memory_pressure, None);
    }

    #[test]
    fn a_hybrid_layout_is_one_tree_and_each_controller_counts_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        write(
            root,
            &[
                ("unified/a/cgroup.procs", "1\n"),
                ("unified/a/cpu.stat", "usage_usec 5\n"),
                ("memory/a/memory.usage_in_bytes", "100\n"),
                ("memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
                (
                    "memory/a/memory.stat",
                    "cache 1\ntotal_cache 2\ntotal_rss 3\n",
                ),
                (
                    "memory/a/memory.oom_control",
                    "oom_kill_disable 0\noom_kill 4\n",
                ),
                ("cpu/old/cpuacct.usage", "77\n"),
                (
                    "cpu/old/cpu.stat",
                    "nr_periods 1\nnr_throttled 2\nthrottled_time 3\n",
                ),
                ("cpu/old/cpu.cfs_quota_us", "-1\n"),
                ("cpu/old/cpu.cfs_period_us", "100000\n"),
                ("cpu/old/cgroup.procs", "5\n6\n7\n"),
                (
                    "blkio/a/blkio.throttle.io_service_bytes_recursive",
                    "8:0 Read 1\n8:0 Write 2\n8:0 Total 3\nTotal 3\n",
                ),
            ],
        );
        let hierarchies = Hierarchies::new(&[
            mount("tmpfs", root, "rw"),
            mount("cgroup", &root.join("cpu"), "rw,cpu,cpuacct"),
            mount("cgroup", &root.join("memory"), "rw,memory"),
            mount("cgroup", &root.join("blkio"), "rw,blkio"),
            mount("cgroup2", &root.join("unified"), "rw"),
        ]);
        let tree = hierarchies
            .read(&Selection::new("/", 0, 9).unwrap())
            .unwrap();
        assert_eq!(tree.mode, Mode::Hybrid);
        assert_eq!(paths(&tree), [("/", 0), ("/a", 1), ("/old", 1)]);
        let a = &tree.cgroups[1].usage;
        assert_eq!(a.cpu.unwrap().usage_nanos, 5000);
        let memory = a.memory.unwrap();
        assert_eq!((memory.current_bytes, memory.limit_bytes), (100, None));
        assert_eq!((memory.anonymous_bytes, memory.oom_kills), (3, 4));
        assert_eq!(a.io.unwrap().written_bytes, 2);
        let old = &tree.cgroups[2].usage;
        assert_eq!((old.cpu.unwrap().usage_nanos, old.processes), (77, 3));
        assert_eq!(old.cpu.unwrap().limit, None);
        assert!(old.memory.is_none() && old.pids.is_none());
    }

    #[test]
    fn paths_that_leave_the_hierarchy_are_refused() {
        let long = format!("/{}", "x".repeat(5000));
        for bad in ["..", "/../etc", "/a/../b", "a", "./a", "/a\0b", &long] {
            assert!(
                matches!(Selection::new(bad, 0, 1), Err(CgroupsError::BadPath(_))),
                "{bad:?}"
            );
        }
        assert!(Selection::new("//a//b/", 0, 1).is_ok());
    }

    #[test]
    fn the_cgroups_of_this_machine_are_read() {
        let tree = Selection::new("/", 1, 1000).unwrap().read().unwrap();
        assert_eq!(tree.cgroups[0].path, "/");
        assert!(tree.cgroups[0].usage.cpu.is_some());
    }
}
