use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A mount namespace with a small file system of its own in it. Nothing outside ever sees the
/// mount, and it goes with the processes inside, whatever becomes of the test.
pub struct PrivateMounts {
    /// Ends when its standard input does, that is, with the test at the latest.
    holder: Child,
}

/// Names the namespace without keeping it.
#[derive(Clone, Copy)]
pub struct MountsOf {
    holder: u32,
}

impl PrivateMounts {
    /// Whether this user can have one at all.
    pub fn are_possible() -> bool {
        rustix::process::geteuid().is_root()
    }

    /// Puts an empty file system of so many KiB at `path`, which is made if need be.
    pub fn tmpfs(path: &Path, kib: u32) -> Self {
        std::fs::create_dir_all(path).unwrap();
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c"])
            .arg("mount -t tmpfs -o mode=0700,size=\"$1\"k tmpfs \"$0\" && echo ready && exec cat")
            .arg(path)
            .arg(kib.to_string());
        let mut holder = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut stdout = BufReader::new(holder.stdout.take().unwrap());
        stdout.read_line(&mut said).unwrap();
        let mounts = Self { holder };
        assert_eq!(said, "ready\n", "{} could not be mounted", path.display());
        mounts
    }

    pub fn remount_read_only(&self, path: &Path) {
        let mut mount = self.of().command(Path::new("mount"));
        mount.args(["-o", "remount,ro"]).arg(path);
        assert!(mount.status().unwrap().success());
    }

    /// The way to a file in there from out here.
    pub fn seen(&self, path: &Path) -> PathBuf {
        self.of().seen(path)
    }

    pub fn of(&self) -> MountsOf {
        MountsOf {
            holder: self.holder.id(),
        }
    }
}

impl Drop for PrivateMounts {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl MountsOf {
    pub fn seen(self, path: &Path) -> PathBuf {
        let inside = path.strip_prefix("/").unwrap_or(path);
        PathBuf::from(format!("/proc/{}/root", self.holder)).join(inside)
    }

    /// A program that runs in there; it becomes the process itself, not a child of another.
    pub fn command(self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--mount", "--target"])
            .arg(self.holder.to_string())
            .arg(program);
        command
    }
}
