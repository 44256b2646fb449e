//! A minimal Debian of this machine's release: nothing is installed in it that the package under
//! test does not bring.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::{CliOutput, target_dir};

/// Enters the root `$1` and runs the script `$2`, as PID 1 of its namespace, with a loopback
/// interface alone. Everything that it leaves running ends with it.
const RUN: &str = r#"
ip link set lo up
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
exec chroot "$1" /bin/sh -euc "$2"
"#;
/// Bounds a script: one that hangs ends with exit code 124.
const SCRIPT_TIMEOUT: &str = "180";

/// A root directory with the base system, removed when it is dropped.
#[derive(Debug)]
pub struct Debian {
    root: TempDir,
}

impl Debian {
    /// Unpacks the archive that `scripts/setup-test` creates.
    pub fn unpack() -> Self {
        let root = TempDir::with_prefix("mainstay-debian-").unwrap();
        let unpacked = Command::new("tar")
            .arg("-xf")
            .arg(base())
            .arg("-C")
            .arg(root.path())
            .status()
            .unwrap();
        assert!(unpacked.success(), "cannot unpack {}", base().display());
        Self { root }
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Runs a shell script in it, as root.
    pub fn run(&self, script: &str) -> CliOutput {
        let output = Command::new("timeout")
            .args(["--kill-after=5", SCRIPT_TIMEOUT, "unshare"])
            .args([
                "--mount",
                "--pid",
                "--net",
                "--ipc",
                "--uts",
                "--fork",
                "--kill-child",
            ])
            .args(["sh", "-euc", RUN, "sh"])
            .arg(self.root())
            .arg(script)
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .envs([("HOME", "/root"), ("LANG", "C.UTF-8")])
            .output()
            .unwrap();
        CliOutput::from(output)
    }
}

pub(crate) fn base() -> std::path::PathBuf {
    target_dir().join("tools/debian.tar")
}
