mod config;
#[cfg(feature = "cri")]
mod pods;

use std::path::{Path, PathBuf};
use std::process::Command;

#[cfg(feature = "cri")]
pub use self::pods::Pod;
use crate::images::{self, BUSYBOX};
use crate::{NamespaceHolder, ServerProcess, Sweeper};

/// Runs containerd in the cgroup `$1` and in the directory `$2`. The mount namespace hides the
/// fixed paths in `/run` where it and its shims keep files.
const RUN: &str = r#"
for tree in /sys/fs/cgroup /sys/fs/cgroup/pids /sys/fs/cgroup/unified; do
  [ -e $tree/cgroup.procs ] || continue
  mkdir -p $tree/$1/daemon && echo $$ > $tree/$1/daemon/cgroup.procs
done
mkdir -p "$2/run" && mount --bind "$2/run" /run && exec containerd --config "$2/config.toml" 2>&1
"#;

/// A containerd with a socket, mount namespace and cgroup of its own, and busybox images in it.
/// A [`Sweeper`] kills its containers.
pub struct TestContainerd {
    daemon: Option<ServerProcess>,
    announcements: &'static [&'static str],
    // Declared last: the containers go when the daemon is gone.
    sweeper: Sweeper,
}

impl TestContainerd {
    /// Starts containerd without its CRI plugin.
    pub fn without_cri() -> Self {
        Self::with_config(config::without_cri, config::BOOTED, &["default"])
    }

    /// Starts containerd with its CRI plugin.
    #[cfg(feature = "cri")]
    pub fn start() -> Self {
        let announcements = config::BOOTED_WITH_CRI;
        Self::with_config(config::with_cri, announcements, &["default", "k8s.io"])
    }

    fn with_config(
        config: impl FnOnce(&Path) -> String,
        announcements: &'static [&'static str],
        namespaces: &[&str],
    ) -> Self {
        let mut containerd = Self {
            daemon: None,
            announcements,
            sweeper: Sweeper::start("containerd"),
        };
        let dir = containerd.scratch();
        std::fs::write(dir.join("config.toml"), config(dir)).unwrap();
        let archive = images::archive(dir);
        containerd.run();
        for namespace in namespaces {
            let archive = archive.to_str().unwrap();
            containerd.ctr(&["-n", namespace, "images", "import", archive]);
        }
        containerd
    }

    pub fn socket(&self) -> PathBuf {
        self.scratch().join("containerd.sock")
    }

    /// A directory for logs and other files of the test.
    pub fn scratch(&self) -> &Path {
        self.sweeper.dir()
    }

    /// The configuration of a node that uses it.
    pub fn node_config(&self) -> String {
        format!("[containers]\ncontainerd = {:?}\n", self.socket())
    }

    /// Kills the daemon; containers go on.
    pub fn stop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill();
        }
    }

    /// Starts the daemon, for the first time or again.
    pub fn run(&mut self) {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", RUN, "sh", self.sweeper.cgroup()])
            .arg(self.scratch());
        let mut missing = self.announcements.to_vec();
        let stderr = self.scratch().join("stderr");
        self.daemon = Some(ServerProcess::start(command, &stderr, |line| {
            missing.retain(|words| !line.contains(words));
            missing.is_empty()
        }));
    }

    /// Runs `ctr`, which must succeed, and returns its standard output.
    pub fn ctr(&self, args: &[&str]) -> String {
        let socket = self.socket();
        let command = [&["ctr", "--address", socket.to_str().unwrap()], args].concat();
        let output = if args.contains(&"--tty") {
            // ctr insists on a terminal of its own.
            let quoted = |word: &&str| format!("'{}'", word.replace('\'', r"'\''"));
            let line = command.iter().map(quoted).collect::<Vec<_>>().join(" ");
            Command::new("script")
                .args(["-qec", &line, "/dev/null"])
                .output()
        } else {
            Command::new(command[0]).args(&command[1..]).output()
        };
        let output = output.expect("cannot run ctr; scripts/setup-test installs containerd");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ctr {args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a container in the namespace `default`, with further options of `ctr run`.
    pub fn run_container(&self, id: &str, options: &[&str], program: &[&str]) {
        let options = [&["--detach"], options].concat();
        self.ctr(&words(&self.run_arguments(id, &options, program)));
    }

    /// The cgroup below which its containers belong.
    pub fn cgroup(&self) -> &str {
        self.sweeper.cgroup()
    }

    /// The directory that containerd and `ctr` both see, for the standard streams of containers.
    pub fn fifos(&self) -> PathBuf {
        self.scratch().join("fifos")
    }

    /// `ctr`, without arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new("ctr");
        command.arg("--address").arg(self.socket());
        command
    }

    /// A command that runs a container in the namespace `default` from its creation to its
    /// removal.
    pub fn run_command(&self, id: &str, program: &[&str]) -> Command {
        let mut command = self.command();
        command.args(self.run_arguments(id, &["--rm"], program));
        command
    }

    fn run_arguments(&self, id: &str, options: &[&str], program: &[&str]) -> Vec<String> {
        let cgroup = format!("/{}/{id}", self.sweeper.cgroup());
        let fifos = self.fifos();
        let fixed = ["run", "--cgroup", &cgroup, "--fifo-dir"];
        let arguments = [&fixed[..], &[fifos.to_str().unwrap()], options];
        let arguments = [&arguments.concat()[..], &[BUSYBOX, id], program].concat();
        arguments.into_iter().map(str::to_owned).collect()
    }

    /// The PID of the init process of a running container in the namespace `default`.
    pub fn container_pid(&self, id: &str) -> u32 {
        let list = self.ctr(&["tasks", "list"]);
        let pid = list.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some(id)).then(|| words.next()?.parse().ok())?
        });
        pid.unwrap_or_else(|| panic!("{id} is not among the tasks:\n{list}"))
    }

    /// Creates an empty named network namespace, as a CNI plugin does for a pod. It goes with
    /// containerd.
    pub fn network(&self, name: &str) -> PathBuf {
        let path = self.scratch().join(name);
        std::fs::write(&path, "").unwrap();
        let daemon = self.daemon.as_ref().expect("containerd runs");
        let mut command = NamespaceHolder::command_in(daemon.pid(), "--mount", "unshare");
        command.arg(format!("--net={}", path.display())).arg("true");
        assert!(command.status().unwrap().success());
        path
    }
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}
