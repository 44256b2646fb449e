//! Requirements of tests on the machine.

use std::path::Path;

use crate::{older_binary, target_dir};

/// Set to `1` in the environment, it turns a requirement that is not met into a skipped test with
/// a line that says why. Otherwise the test fails, so that nothing passes without having run:
/// `make test` runs as root and installs everything.
pub const SKIP_VARIABLE: &str = "MAINSTAY_SKIP_UNSUPPORTED";

/// A property of the machine without which a test cannot run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// The effective UID is 0.
    Root,
    /// containerd, runc and a busybox without shared libraries, and root.
    Containerd,
    /// `ip`, and root.
    Network,
    /// QEMU, and a kernel for it.
    Guest,
    /// `mkfs.ext4`, and root for a loop device.
    LoopDisk,
    /// Any block device.
    BlockDevice,
    /// A minimal Debian to install packages in, what makes packages, and root.
    Packaging,
    /// The older release that upgrade tests run against.
    OlderBuild,
}

/// Returns from the test unless the machine meets these [`Requirement`]s; see
/// [`Requirement::check`].
#[macro_export]
macro_rules! require {
    ($($requirement:ident),+ $(,)?) => {
        $(
            if !$crate::Requirement::$requirement.check() {
                return;
            }
        )+
    };
}

impl Requirement {
    /// Whether it is met. Panics with the reason if not, or prints it if [`SKIP_VARIABLE`] is set.
    #[track_caller]
    pub fn check(self) -> bool {
        let Err(reason) = self.state() else {
            return true;
        };
        assert!(
            std::env::var_os(SKIP_VARIABLE).is_some_and(|value| value == "1"),
            "cannot run here: {reason}; {SKIP_VARIABLE}=1 skips such tests"
        );
        println!("skipped: {reason}");
        false
    }

    fn state(self) -> Result<(), String> {
        match self {
            Self::Root => root(),
            Self::Containerd => {
                root()?;
                for program in ["containerd", "ctr", "runc", "busybox"] {
                    installed(program)?;
                }
                Ok(())
            }
            Self::Network => root().and_then(|()| installed("ip")),
            Self::Guest => {
                installed("qemu-system-x86_64")?;
                let kernel = target_dir().join("tools/vmlinuz");
                exists(&kernel, "scripts/setup-test downloads it")
            }
            Self::LoopDisk => {
                root()?;
                installed("mkfs.ext4")?;
                exists(Path::new("/dev/loop-control"), "load the module loop")
            }
            Self::Packaging => {
                root()?;
                for program in ["dpkg-deb", "strip", "unshare", "ip"] {
                    installed(program)?;
                }
                let by = "scripts/setup-test creates it";
                exists(&crate::debian::base(), by)?;
                exists(&target_dir().join("tools/bin/cargo-cyclonedx"), by)
            }
            Self::OlderBuild => exists(&older_binary(), "scripts/older-build builds it"),
            Self::BlockDevice => {
                let mut devices = std::fs::read_dir("/sys/dev/block").into_iter().flatten();
                let any = devices.next();
                any.map(drop)
                    .ok_or_else(|| "this machine has no block device".to_owned())
            }
        }
    }
}

fn root() -> Result<(), String> {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err("needs root".to_owned())
    }
}

fn installed(program: &str) -> Result<(), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Where Debian keeps what only root runs; not in everybody's PATH.
    let mut directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    if directories.any(|directory| directory.join(program).is_file()) {
        Ok(())
    } else {
        Err(format!(
            "{program} is not installed (scripts/setup-test installs it)"
        ))
    }
}

fn exists(path: &Path, otherwise: &str) -> Result<(), String> {
    if path.exists() {
        Ok(())
    } else {
        Err(format!("{} does not exist ({otherwise})", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_what_installs_it() {
        assert_eq!(installed("sh"), Ok(()));
        let reason = installed("no-such-program").unwrap_err();
        assert!(
            reason.contains("no-such-program is not installed"),
            "{reason}"
        );
        assert!(reason.contains("scripts/setup-test"), "{reason}");
    }

    #[test]
    fn a_missing_file_is_named_with_what_provides_it() {
        let reason = exists(Path::new("/no/such/file"), "do this").unwrap_err();
        assert_eq!(reason, "/no/such/file does not exist (do this)");
    }
}
