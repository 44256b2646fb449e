//! CPU and memory usage of a process's cgroup, on v1, v2 and hybrid machines.
//!
//! Blocking; for processes that stay in the cgroup they were started in, as a sandbox's does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use mainstay_mounts::Mount;

use crate::container::Usage;

/// The cgroup hierarchies of this machine and where they are mounted.
#[derive(Debug)]
pub(crate) struct Hierarchies(Vec<Mount>);

impl Hierarchies {
    pub(crate) fn detect() -> io::Result<Self> {
        Ok(Self::new(mainstay_mounts::read()?))
    }

    fn new(mut mounts: Vec<Mount>) -> Self {
        mounts.retain(|mount| matches!(mount.fs_type.as_str(), "cgroup" | "cgroup2"));
        Self(mounts)
    }

    /// Reads the usage of the cgroup that holds the process `pid`.
    pub(crate) fn usage(&self, pid: u32) -> io::Result<Usage> {
        self.usage_of(&fs::read_to_string(format!("/proc/{pid}/cgroup"))?)
    }

    fn usage_of(&self, memberships: &str) -> io::Result<Usage> {
        let (charged, inactive) = match self.v1_directory(memberships, "memory") {
            Some(memory) => (
                number(&memory.join("memory.usage_in_bytes"))?,
                counter(&memory.join("memory.stat"), "total_inactive_file")?,
            ),
            None => {
                let memory = self.v2_directory(memberships)?;
                (
                    number(&memory.join("memory.current"))?,
                    counter(&memory.join("memory.stat"), "inactive_file")?,
                )
            }
        };
        let nanos = match self.v1_directory(memberships, "cpuacct") {
            Some(cpu) => number(&cpu.join("cpuacct.usage"))?,
            None => {
                let cpu = self.v2_directory(memberships)?.join("cpu.stat");
                counter(&cpu, "usage_usec")?.saturating_mul(1000)
            }
        };
        Ok(Usage::new(charged, inactive, nanos))
    }

    /// The directory of the v1 cgroup that accounts for `controller`, if v1 has that controller.
    fn v1_directory(&self, memberships: &str, controller: &str) -> Option<PathBuf> {
        let is_hierarchy =
            |mount: &&Mount| mount.fs_type == "cgroup" && mount.has_option(controller);
        let mount = self.0.iter().find(is_hierarchy)?;
        // Lines are `number:controllers:path`; controllers may share a hierarchy.
        memberships.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let found = controllers.split(',').any(|name| name == controller);
            found.then(|| below(mount, path))
        })
    }

    fn v2_directory(&self, memberships: &str) -> io::Result<PathBuf> {
        let mount = self.0.iter().find(|mount| mount.fs_type == "cgroup2");
        let path = memberships
            .lines()
            .find_map(|line| line.strip_prefix("0::"));
        match (mount, path) {
            (Some(mount), Some(path)) => Ok(below(mount, path)),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// The directory of a cgroup in a hierarchy of which perhaps only a part is mounted.
fn below(mount: &Mount, path: &str) -> PathBuf {
    let path = Path::new(path);
    let path = path.strip_prefix(&mount.root).unwrap_or(path);
    mount.target.join(path.strip_prefix("/").unwrap_or(path))
}

fn number(file: &Path) -> io::Result<u64> {
    parse(fs::read_to_string(file)?.trim())
}

/// Reads one counter of a file of `name value` lines; 0 if this kernel does not keep it.
fn counter(file: &Path, name: &str) -> io::Result<u64> {
    let text = fs::read_to_string(file)?;
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .find(|(key, _)| *key == name)
        .map_or(Ok(0), |(_, value)| parse(value))
}

fn parse(text: &str) -> io::Result<u64> {
    text.parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn mount(root: &Path, fs_type: &str, target: &str, options: &str) -> Mount {
        Mount {
            device: "0:1".to_owned(),
            flags: "rw".to_owned(),
            root: PathBuf::from("/"),
            target: root.join(target),
            fs_type: fs_type.to_owned(),
            source: fs_type.to_owned(),
            options: options.to_owned(),
        }
    }

    #[test]
    fn v2_is_read_from_the_one_hierarchy() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "a/b/memory.current", "1000\n");
        write(root, "a/b/memory.stat", "anon 1\ninactive_file 300\n");
        write(root, "a/b/cpu.stat", "usage_usec 5\nuser_usec 1\n");
        let hierarchies = Hierarchies::new(vec![
            mount(root, "tmpfs", "elsewhere", "rw"),
            mount(root, "cgroup2", "", "rw,nsdelegate"),
        ]);
        let usage = hierarchies.usage_of("0::/a/b\n").unwrap();
        assert_eq!((usage.memory_bytes, usage.cpu_nanos), (700, 5000));
    }

    #[test]
    fn v1_and_hybrid_are_read_from_the_controllers_hierarchies() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "memory/m/memory.usage_in_bytes", "1000\n");
        let stat = "inactive_file 1\ntotal_inactive_file 300\n";
        write(root, "memory/m/memory.stat", stat);
        write(root, "cpu/c/cpuacct.usage", "5\n");
        let hierarchies = Hierarchies::new(vec![
            mount(root, "cgroup", "memory", "rw,memory"),
            mount(root, "cgroup", "cpu", "rw,cpu,cpuacct"),
            mount(root, "cgroup2", "unified", "rw"),
        ]);
        let memberships = "3:memory:/m\n2:cpu,cpuacct:/c\n1:name=systemd:/s\n0::/u\n";
        let usage = hierarchies.usage_of(memberships).unwrap();
        assert_eq!((usage.memory_bytes, usage.cpu_nanos), (700, 5));
    }

    #[test]
    fn controllers_may_be_split_between_v1_and_v2() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "cpuacct/c/cpuacct.usage", "5\n");
        write(root, "unified/u/memory.current", "10\n");
        write(root, "unified/u/memory.stat", "anon 10\n");
        let hierarchies = Hierarchies::new(vec![
            mount(root, "cgroup", "cpuacct", "rw,cpuacct"),
            mount(root, "cgroup2", "unified", "rw"),
        ]);
        let usage = hierarchies.usage_of("2:cpuacct:/c\n0::/u\n").unwrap();
        assert_eq!((usage.memory_bytes, usage.cpu_nanos), (10, 5));
    }

    #[test]
    fn a_hierarchy_mounted_in_part_is_read_below_that_part() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "b/memory.current", "10\n");
        write(root, "b/memory.stat", "");
        write(root, "b/cpu.stat", "usage_usec 1\n");
        let hierarchies = Hierarchies::new(vec![Mount {
            root: PathBuf::from("/a"),
            ..mount(root, "cgroup2", "", "rw")
        }]);
        let usage = hierarchies.usage_of("0::/a/b\n").unwrap();
        assert_eq!((usage.memory_bytes, usage.cpu_nanos), (10, 1000));
    }

    #[test]
    fn a_missing_hierarchy_or_file_and_nonsense_are_errors() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert!(Hierarchies::new(Vec::new()).usage_of("0::/\n").is_err());
        let hierarchies = Hierarchies::new(vec![mount(root, "cgroup2", "", "rw")]);
        assert!(hierarchies.usage_of("").is_err());
        assert!(hierarchies.usage_of("0::/\n").is_err());
        write(root, "memory.current", "lots\n");
        assert!(hierarchies.usage_of("0::/\n").is_err());
    }

    #[test]
    fn the_usage_of_this_process_is_read() {
        let hierarchies = Hierarchies::detect().unwrap();
        assert!(hierarchies.usage(std::process::id()).unwrap().memory_bytes > 0);
    }
}
