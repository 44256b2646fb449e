use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// Kills every process in the cgroup `$1`, in every hierarchy, and removes it and the directory
/// `$2`. Starts at EOF, however its owner ended. A process that was just killed keeps its cgroup
/// busy for a moment, so it retries, for about 10 s at most.
const SWEEP: &str = r#"
cat >/dev/null
retries=1000
while trees=$(find /sys/fs/cgroup -maxdepth 2 -type d -name "$1" 2>/dev/null); [ -n "$trees" ]; do
  pids=$(find $trees -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u)
  [ -z "$pids" ] || kill -KILL $pids 2>/dev/null
  find $trees -depth -type d -exec rmdir {} + 2>/dev/null && continue
  retries=$((retries - 1))
  if [ $retries -eq 0 ]; then
    echo "cannot remove cgroup $1: processes" $pids "survived SIGKILL" >&2
    break
  fi
  sleep 0.01
done
rm -rf "$2"
"#;

/// A directory and the name of a cgroup, both removed when it is dropped or when its owner dies.
///
/// Cells and containers outlive whatever started them, so a process in a session of its own waits
/// for the end of the owner and kills them.
#[derive(Debug)]
pub struct Sweeper {
    cgroup: String,
    dir: PathBuf,
    process: Child,
}

impl Sweeper {
    /// `name` is part of the names of both.
    pub fn start(name: &str) -> Self {
        let dir = TempDir::with_prefix(format!("mainstay-{name}-")).unwrap();
        let cgroup = dir.path().file_name().unwrap().to_str().unwrap().to_owned();
        let process = Command::new("setsid")
            .args(["sh", "-c", SWEEP, "sh", &cgroup])
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            cgroup,
            dir: dir.keep(),
            process,
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The name of the cgroup, below the root of every hierarchy. Its user creates it.
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::process::ExitStatusExt as _;

    use rustix::process::Signal;

    use super::*;

    #[test]
    fn nested_cgroups_and_their_processes_are_removed() {
        let trees = ["", "unified", "pids"].map(|tree| Path::new("/sys/fs/cgroup").join(tree));
        let mut trees = trees.into_iter();
        let tree = trees.find(|tree| tree.join("cgroup.procs").exists());
        let sweeper = Sweeper::start("sweeper");
        let cgroup = tree.expect("a cgroup hierarchy").join(sweeper.cgroup());
        let dir = sweeper.dir().to_owned();
        fs::create_dir_all(cgroup.join("outer/inner")).unwrap();
        let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
        let procs = cgroup.join("outer/inner/cgroup.procs");
        let moved = fs::write(procs, sleeper.id().to_string());
        if moved.is_err() {
            sleeper.kill().unwrap();
        }
        drop(sweeper);
        let status = sleeper.wait().unwrap();
        moved.unwrap();
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
        assert!(!cgroup.exists());
        assert!(!dir.exists());
    }

    #[test]
    fn a_cgroup_that_was_never_created_is_no_error() {
        let sweeper = Sweeper::start("sweeper");
        let dir = sweeper.dir().to_owned();
        drop(sweeper);
        assert!(!dir.exists());
    }
}
