use std::path::{Path, PathBuf};
use std::process::Command;

use crate::NamespaceHolder;

/// A mount namespace with a file system of its own in it. Nothing outside sees the mount.
pub struct PrivateMounts {
    holder: NamespaceHolder,
}

/// A mount namespace, by the PID of a process in it. Does not keep it alive.
#[derive(Clone, Copy)]
pub struct MountNamespace {
    holder: u32,
}

impl PrivateMounts {
    /// Mounts an empty tmpfs of `kib` KiB at `path`, which is created if it does not exist.
    pub fn tmpfs(path: &Path, kib: u32) -> Self {
        std::fs::create_dir_all(path).unwrap();
        let script = r#"mount -t tmpfs -o mode=0700,size="$1"k tmpfs "$0""#;
        let arguments = [path.to_str().unwrap(), &kib.to_string()];
        Self {
            holder: NamespaceHolder::unshare(&["--mount"], script, &arguments),
        }
    }

    /// Mounts a file system at `path` on which every access hangs until this is dropped.
    pub fn hung(path: &Path) -> Self {
        std::fs::create_dir_all(path).unwrap();
        // A FUSE server that never replies: requests wait for it, and fail when the last process
        // that has the device open exits.
        let script = r#"exec 3<>/dev/fuse &&
            mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 hung "$0""#;
        Self {
            holder: NamespaceHolder::unshare(&["--mount"], script, &[path.to_str().unwrap()]),
        }
    }

    pub fn remount_read_only(&self, path: &Path) {
        let mut mount = self.namespace().command(Path::new("mount"));
        mount.args(["-o", "remount,ro"]).arg(path);
        assert!(mount.status().unwrap().success());
    }

    /// The path of a file in the namespace as seen from outside.
    pub fn seen(&self, path: &Path) -> PathBuf {
        self.namespace().seen(path)
    }

    pub fn namespace(&self) -> MountNamespace {
        MountNamespace::of(&self.holder)
    }
}

impl MountNamespace {
    pub(crate) fn of(holder: &NamespaceHolder) -> Self {
        Self {
            holder: holder.pid(),
        }
    }

    /// The path of a file in the namespace as seen from outside.
    pub fn seen(self, path: &Path) -> PathBuf {
        let inside = path.strip_prefix("/").unwrap_or(path);
        PathBuf::from(format!("/proc/{}/root", self.holder)).join(inside)
    }

    /// A command that runs in the namespace, as the process itself and not as a child of another.
    pub fn command(self, program: &Path) -> Command {
        NamespaceHolder::command_in(self.holder, "--mount", program)
    }
}
