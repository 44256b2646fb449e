//! What a process's cgroup uses, read from the kernel: v1, v2 and hybrid machines.
//!
//! Blocking; for processes that stay in the cgroup they were started in, as a sandbox's does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::container::Usage;

const ROOT: &str = "/sys/fs/cgroup";

pub(crate) fn usage(pid: u32) -> io::Result<Usage> {
    let memberships = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    usage_of(Path::new(ROOT), &memberships)
}

fn usage_of(root: &Path, memberships: &str) -> io::Result<Usage> {
    let (charged, inactive) = match v1_directory(root, memberships, "memory") {
        Some(memory) => (
            number(&memory.join("memory.usage_in_bytes"))?,
            counter(&memory.join("memory.stat"), "total_inactive_file")?,
        ),
        None => {
            let memory = v2_directory(root, memberships);
            (
                number(&memory.join("memory.current"))?,
                counter(&memory.join("memory.stat"), "inactive_file")?,
            )
        }
    };
    let nanos = match v1_directory(root, memberships, "cpuacct") {
        Some(cpu) => number(&cpu.join("cpuacct.usage"))?,
        None => {
            let cpu = v2_directory(root, memberships).join("cpu.stat");
            counter(&cpu, "usage_usec")?.saturating_mul(1000)
        }
    };
    Ok(Usage::new(charged, inactive, nanos))
}

/// Lines are `number:controllers:path`; controllers may share a tree.
fn v1_directory(root: &Path, memberships: &str, controller: &str) -> Option<PathBuf> {
    memberships.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let found = controllers.split(',').any(|name| name == controller);
        found.then(|| below(&root.join(controllers), path))
    })
}

/// The tree of its own line, without controllers. On hybrid machines it is mounted further down.
fn v2_directory(root: &Path, memberships: &str) -> PathBuf {
    let path = memberships
        .lines()
        .find_map(|line| line.strip_prefix("0::"));
    let unified = root.join("unified");
    let tree = if unified.is_dir() { &unified } else { root };
    below(tree, path.unwrap_or("/"))
}

fn below(tree: &Path, path: &str) -> PathBuf {
    tree.join(path.trim_start_matches('/'))
}

fn number(file: &Path) -> io::Result<u64> {
    parse(fs::read_to_string(file)?.trim())
}

/// A counter that this kernel does not keep is 0.
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

    #[test]
    fn v2_is_read_from_the_one_tree() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a/b/memory.current", "1000\n");
        write(
            root.path(),
            "a/b/memory.stat",
            "anon 1\ninactive_file 300\n",
        );
        write(root.path(), "a/b/cpu.stat", "usage_usec 5\nuser_usec 1\n");
        let usage = usage_of(root.path(), "0::/a/b\n").unwrap();
        assert_eq!((usage.memory_bytes, usage.cpu_nanos), (700, 5000));
    }

    #[test]
    fn v1_and_hybrid_are_read_from_the_controllers_own_trees() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "memory/m/memory.usage_in_bytes", "1000\n");
        let stat = "inactive_file 1\ntotal_inactive_file 300\n";
        write(root.path(), "memory/m/memory.stat", stat);
        write(root.path(), "cpu,cpuacct/c/cpuacct.usage", "5\n");
        write(root.path(), "unified/u/cgroup.procs", "");
        let memberships = "3:memory:/m\n2:cpu,cpuacct:/c\n1:name=systemd:/s\n0::/u\n";
        let usage = usage_of(root.path(), memberships).unwrap();
        assert_eq!((usage.memory_bytes, usage.cpu_nanos), (700, 5));
    }

    #[test]
    fn controllers_may_be_split_between_the_trees() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "cpuacct/c/cpuacct.usage", "5\n");
        write(root.path(), "unified/u/memory.current", "10\n");
        write(root.path(), "unified/u/memory.stat", "anon 10\n");
        let usage = usage_of(root.path(), "2:cpuacct:/c\n0::/u\n").unwrap();
        assert_eq!((usage.memory_bytes, usage.cpu_nanos), (10, 5));
    }

    #[test]
    fn what_is_not_there_is_an_error_and_so_is_nonsense() {
        let root = tempfile::tempdir().unwrap();
        assert!(usage_of(root.path(), "").is_err());
        write(root.path(), "memory.current", "lots\n");
        assert!(usage_of(root.path(), "0::/\n").is_err());
    }
}
