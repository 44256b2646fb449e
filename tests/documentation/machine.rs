//! A machine as the documentation assumes it: empty, with `mainstay` on the PATH, its own `/etc`,
//! `/var/lib`, host name and network.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mainstay_testkit::{
    NamespaceHolder, NetworkNamespace, ServerProcess, Sweeper, binary, target_dir,
};

/// Hides `/var/lib`, and makes `/etc` a directory of links to the real files, without ours; `$0` is
/// the name of the machine, `$1` its address or empty.
const SETUP: &str = r#"
    ip link set lo up && hostname "$0" &&
    { [ -z "$1" ] || ip address add "$1"/24 dev eth0; } &&
    mount -t tmpfs -o mode=0755 tmpfs /var/lib && mkdir /var/lib/etc &&
    mount --bind /etc /var/lib/etc && mount -t tmpfs -o mode=0755 tmpfs /etc &&
    find /var/lib/etc -mindepth 1 -maxdepth 1 ! -name mainstay -exec ln -s -t /etc {} +
"#;

/// Bound on a command that only ends when it is interrupted.
const MOMENT: &str = "2";

pub struct Machine {
    dir: PathBuf,
    /// The cgroup of its cells, which is removed after the test.
    cgroup: String,
    daemon: Option<ServerProcess>,
    // Declared last: the daemon lives in its namespaces.
    holder: NamespaceHolder,
}

/// The output of a command, stderr included, and its exit code.
pub struct Ran {
    pub output: String,
    pub code: i32,
}

impl Machine {
    /// A machine without a network.
    pub fn alone(sweeper: &Sweeper, name: &str) -> Self {
        Self::start(sweeper, Command::new("unshare"), &["--net"], name, "")
    }

    /// The machine `10.0.0.NUMBER` of a network.
    pub fn on(sweeper: &Sweeper, network: NetworkNamespace, name: &str, number: usize) -> Self {
        let unshare = network.command(Path::new("unshare"));
        Self::start(sweeper, unshare, &[], name, &format!("10.0.0.{number}"))
    }

    fn start(
        sweeper: &Sweeper,
        mut unshare: Command,
        options: &[&str],
        name: &str,
        address: &str,
    ) -> Self {
        let dir = sweeper.dir().join(name);
        for part in ["bin", "work"] {
            std::fs::create_dir_all(dir.join(part)).unwrap();
        }
        std::os::unix::fs::symlink(binary(), dir.join("bin/mainstay")).unwrap();
        unshare
            .args(options)
            .args(["--mount", "--uts", "sh", "-c"])
            .arg(format!("{{ {}; }} && echo ready && exec cat", SETUP.trim()))
            .args([name, address]);
        Self {
            holder: NamespaceHolder::spawn(unshare),
            daemon: None,
            cgroup: sweeper.cgroup().to_owned(),
            dir,
        }
    }

    pub fn holder(&self) -> u32 {
        self.holder.pid()
    }

    /// A configuration in which the names of the documentation are this node.
    pub fn write_default_configuration(&mut self) {
        let peers = "[peers]\nn1 = '127.0.0.1'\nn2 = '127.0.0.1'\nn3 = '127.0.0.1'\n";
        let script =
            format!("mkdir -p /etc/mainstay\ncat >/etc/mainstay/config.toml <<'END'\n{peers}END");
        assert_eq!(self.run("", &script).code, 0);
    }

    /// Creates the files that a document assumes.
    pub fn prepare(&mut self, document: &Path) {
        let script = match document.file_name().and_then(|name| name.to_str()) {
            Some("configuration.md") => {
                "printf 'listen = \"127.0.0.1:50001\"\\n\\n[log]\\nlevle = \"debug\"\\n' > config.toml"
            }
            _ => return,
        };
        assert_eq!(self.run("", script).code, 0);
    }

    /// Puts an `scp` on the PATH that copies to the other machines of the test, which have no SSH.
    pub fn install_scp(&self, machines: &[(String, u32)]) {
        let cases: String = machines
            .iter()
            .map(|(name, holder)| format!("{name}) root=/proc/{holder}/root;;\n"))
            .collect();
        let script = format!(
            "#!/bin/sh\nset -e\nwhile [ $# -gt 2 ]; do shift; done\n\
             host=${{2%%:*}}\ncase ${{host#*@}} in\n{cases}*) exit 1;;\nesac\n\
             cp -rp \"$1\" \"$root${{2#*:}}\"\n"
        );
        let path = self.dir.join("bin/scp");
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Starts or stops the daemon, as its unit does.
    pub fn service(&mut self, action: &str) {
        if action == "stop" {
            let mut daemon = self.daemon.take().expect("a running daemon");
            assert!(daemon.stop().success());
            return;
        }
        // Of all keys only this one cannot be a document's: the test removes this cgroup.
        let cgroup = format!(
            "mkdir -p /etc/mainstay; grep -qs '^cgroup = ' /etc/mainstay/config.toml || \
             printf '\\n[cells]\\ncgroup = \"{}\"\\n' >> /etc/mainstay/config.toml",
            self.cgroup
        );
        assert_eq!(self.run("", &cgroup).code, 0);
        let mut command = self.enter("mainstay");
        command.arg("serve");
        let stderr = self.dir.join("stderr");
        let daemon = ServerProcess::start(command, &stderr, |line| line.contains("ready in"));
        self.daemon = Some(daemon);
    }

    /// Runs a command line to its end.
    pub fn run(&mut self, user: &str, command: &str) -> Ran {
        self.shell(user, command, &[])
    }

    /// Runs a command line on a terminal and interrupts it after a moment.
    pub fn run_for_a_moment(&mut self, user: &str, command: &str) -> Ran {
        let script = ["timeout", MOMENT, "script", "-qec"];
        self.shell(user, command, &script)
    }

    fn shell(&mut self, user: &str, command: &str, wrapper: &[&str]) -> Ran {
        let home = self.dir.join(format!("home-{user}"));
        std::fs::create_dir_all(&home).unwrap();
        let mut run = match wrapper {
            [] => {
                let mut bash = self.enter("bash");
                bash.args(["-c", command]);
                bash
            }
            [first, rest @ ..] => {
                let mut wrapped = self.enter(first);
                wrapped.args(rest).arg(command).arg("/dev/null");
                wrapped
            }
        };
        let output = self.dir.join("output");
        let file = std::fs::File::create(&output).unwrap();
        let status = run
            .env("HOME", &home)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .status()
            .unwrap();
        Ran {
            output: String::from_utf8_lossy(&std::fs::read(&output).unwrap()).into_owned(),
            code: status.code().unwrap_or(-1),
        }
    }

    /// A command in the namespaces of the machine.
    fn enter(&self, program: &str) -> Command {
        let tools = target_dir().join("tools/bin");
        let path = std::env::var("PATH").unwrap();
        let path = format!(
            "{}:{}:{path}",
            self.dir.join("bin").display(),
            tools.display()
        );
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", self.holder.pid()))
            .args(["--mount", "--uts", "--net", "--", "env"])
            // A process that enters a mount namespace starts at its root.
            .arg(format!("--chdir={}", self.dir.join("work").display()))
            .arg(program)
            .env_clear()
            .env("PATH", path)
            .env("HOME", &self.dir)
            .env("TERM", "xterm");
        command
    }
}
