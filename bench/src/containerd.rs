//! A containerd of our own, with an image made on the spot: gone with the run, shims and all.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::kernel;
use crate::rootfs;
use crate::server::Running;
use crate::sweeper::Sweeper;

const IMAGE: &str = "mainstay.test/busybox:1";

/// Runs containerd in the control group named by $1 and in the directory $2. What it and its shims
/// keep at fixed places is kept there too, out of the machine's way.
const RUN: &str = r#"
for tree in /sys/fs/cgroup /sys/fs/cgroup/pids /sys/fs/cgroup/unified; do
  [ -e $tree/cgroup.procs ] || continue
  mkdir -p $tree/$1/daemon && echo $$ > $tree/$1/daemon/cgroup.procs
done
mkdir -p "$2/run" && mount --bind "$2/run" /run && exec containerd --config "$2/config.toml"
"#;

#[derive(Debug)]
pub struct Containerd {
    _running: Running,
    // Declared last: containers go when the daemon is gone.
    sweeper: Sweeper,
}

impl Containerd {
    pub async fn start() -> Result<Self> {
        let sweeper = Sweeper::start()?;
        let dir = sweeper.dir();
        std::fs::write(dir.join("config.toml"), config(&dir.display().to_string()))?;
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", RUN, "sh", sweeper.cgroup()])
            .arg(dir)
            .stdout(Stdio::null());
        let running = Running::start(command)
            .await
            .context("containerd is not there; scripts/setup-bench installs it")?;
        let archive = rootfs::archive(dir, IMAGE)?;
        let containerd = Self {
            _running: running,
            sweeper,
        };
        let mut import = containerd.ctr();
        import.args(["images", "import"]).arg(archive);
        said(import)?;
        Ok(containerd)
    }

    /// From nothing to the end of the program, and of the container.
    pub fn run(&self, id: &str, program: &[&str]) -> Command {
        self.container(&["--rm"], id, program)
    }

    /// Starts a container that goes on, and tells the process that looks after it.
    pub fn shim_of(&self, id: &str, program: &[&str]) -> Result<u32> {
        said(self.container(&["--detach"], id, program))?;
        let mut list = self.ctr();
        list.args(["tasks", "list"]);
        let list = said(list)?;
        let pid = list.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some(id)).then(|| words.next()?.parse().ok())?
        });
        kernel::parent(pid.with_context(|| format!("{id} is not among the tasks:\n{list}"))?)
    }

    fn container(&self, options: &[&str], id: &str, program: &[&str]) -> Command {
        let mut command = self.ctr();
        command
            .arg("run")
            .args(options)
            .args(["--cgroup", &format!("/{}/{id}", self.sweeper.cgroup())])
            .arg("--fifo-dir")
            .arg(self.path("fifos"))
            .args([IMAGE, id])
            .args(program);
        command
    }

    fn ctr(&self) -> Command {
        let mut command = Command::new("ctr");
        command.arg("--address").arg(self.path("containerd.sock"));
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.sweeper.dir().join(name)
    }
}

fn said(mut command: Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("ctr is missing; scripts/setup-bench installs containerd")?;
    ensure!(
        output.status.success(),
        "ctr ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// Nothing but what `ctr run` needs.
fn config(dir: &str) -> String {
    format!(
        r#"
version = 2
root = "{dir}/root"
state = "{dir}/state"
disabled_plugins = [
  "io.containerd.grpc.v1.cri",
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
address = "{dir}/containerd.sock"
"#
    )
}
