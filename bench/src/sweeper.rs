//! Clears away what would outlive this program: what runs in control groups, and a directory.
//!
//! Cells and containers go on when whoever started them is gone. So a process that does nothing
//! else waits for the end of its owner, in whatever way it comes, and then ends them.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;

const CGROUPS: &str = "/sys/fs/cgroup";
/// Whoever is killed may have made others before.
const MOST_ROUNDS: usize = 100;
const LONGEST_END: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

#[derive(Debug)]
pub struct Sweeper {
    cgroup: String,
    dir: PathBuf,
    process: Child,
}

impl Sweeper {
    /// A directory and the name of a control group, in every tree, that go when it is dropped.
    pub fn start() -> Result<Self> {
        let dir = TempDir::with_prefix("mainstay-bench-")?;
        let name = dir.path().file_name().map(|name| name.to_string_lossy());
        let cgroup = name.context("a directory has no name")?.into_owned();
        let process = Command::new(std::env::current_exe()?)
            .args(["sweep", &cgroup])
            .arg(dir.path())
            // A Ctrl-C is for its owner.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self {
            cgroup,
            dir: dir.keep(),
            process,
        })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn cgroup(&self) -> &str {
        &self.cgroup
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// The process: begins when its standard input ends.
pub fn sweep(cgroup: &str, dir: &Path) -> Result<()> {
    io::stdin().read_to_end(&mut Vec::new())?;
    clear(cgroup, dir)
}

fn clear(cgroup: &str, dir: &Path) -> Result<()> {
    for group in groups(cgroup)? {
        end_all(&group)?;
        remove(&group)?;
    }
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} cannot be removed", dir.display()))
        }
        _ => Ok(()),
    }
}

/// The group of that name in each tree: one of version 2 alone, or several side by side.
fn groups(name: &str) -> Result<Vec<PathBuf>> {
    let mut groups = vec![Path::new(CGROUPS).join(name)];
    for tree in fs::read_dir(CGROUPS)? {
        groups.push(tree?.path().join(name));
    }
    groups.retain(|group| group.is_dir());
    Ok(groups)
}

fn end_all(group: &Path) -> Result<()> {
    for _ in 0..MOST_ROUNDS {
        let pids = processes(group)?;
        if pids.is_empty() {
            return Ok(());
        }
        for pid in pids {
            // One that ended by itself has nothing to wait for.
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
                continue;
            };
            let _ = pidfd_send_signal(&process, Signal::KILL);
            poll(
                &mut [PollFd::new(&process, PollFlags::IN)],
                Some(&LONGEST_END),
            )?;
        }
    }
    bail!("processes in {} do not end", group.display())
}

fn processes(group: &Path) -> Result<Vec<Pid>> {
    let text = fs::read_to_string(group.join("cgroup.procs"))?;
    let pid = |line: &str| line.parse().ok().and_then(Pid::from_raw);
    let mut all: Vec<Pid> = text.lines().filter_map(pid).collect();
    for nested in nested(group)? {
        all.extend(processes(&nested)?);
    }
    Ok(all)
}

fn remove(group: &Path) -> Result<()> {
    for nested in nested(group)? {
        remove(&nested)?;
    }
    fs::remove_dir(group).with_context(|| format!("{} cannot be removed", group.display()))
}

fn nested(group: &Path) -> Result<Vec<PathBuf>> {
    let mut nested = Vec::new();
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            nested.push(entry.path());
        }
    }
    Ok(nested)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    /// Of either version, whichever this machine has.
    fn tree() -> Option<PathBuf> {
        let trees = ["", "unified", "pids"].map(|tree| Path::new(CGROUPS).join(tree));
        let tree = trees
            .into_iter()
            .find(|tree| tree.join("cgroup.procs").exists());
        tree.filter(|_| rustix::process::geteuid().is_root())
    }

    #[test]
    fn what_runs_in_nested_groups_ends_and_all_of_it_goes() {
        let Some(tree) = tree() else {
            return;
        };
        let dir = TempDir::with_prefix("mainstay-bench-").unwrap();
        let name = dir.path().file_name().unwrap().to_str().unwrap();
        let group = tree.join(name);
        fs::create_dir_all(group.join("outer/inner")).unwrap();
        let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
        let procs = group.join("outer/inner/cgroup.procs");
        let moved = fs::write(procs, sleeper.id().to_string());

        let cleared = clear(name, dir.path());
        if moved.is_err() || cleared.is_err() {
            let _ = sleeper.kill();
        }
        let ended = sleeper.wait().unwrap();
        moved.unwrap();
        cleared.unwrap();
        assert_eq!(ended.signal(), Some(Signal::KILL.as_raw()));
        assert!(!group.exists());
        assert!(!dir.path().exists());
    }

    #[test]
    fn nothing_to_clear_is_fine() {
        let dir = TempDir::with_prefix("mainstay-bench-").unwrap();
        clear("mainstay-bench-of-nobody", &dir.path().join("none")).unwrap();
    }
}
