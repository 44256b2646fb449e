use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;

use crate::{MountNamespace, NamespaceHolder};

/// A freeze ends after this time by itself: a process that waits for the disk cannot be killed, so
/// a test that forgot to thaw would never end.
const MAX_FREEZE: Duration = Duration::from_secs(60);

/// Mounts the image `$1` at `$0`.
const MOUNT: &str = r#"mount -o loop,noatime "$1" "$0" && rmdir "$0/lost+found""#;
/// Thaws the file system at `$0` at EOF: without that it would stay frozen in the kernel for ever,
/// with nothing left that could reach it.
const HOLD: &str = r#"echo ready; cat; fsfreeze --unfreeze "$0" 2>/dev/null; umount --lazy "$0""#;

/// An ext4 file system in a mount namespace of its own that can be frozen, as a disk that stopped
/// answering: writes, creates, renames and fsync block until it is thawed; reads go on.
///
/// A node runs on it with [`TestNodeBuilder::inside`](crate::TestNodeBuilder::inside), other code
/// reaches it with [`FrozenDisk::path`].
pub struct FrozenDisk {
    holder: NamespaceHolder,
    mount_point: PathBuf,
    // Declared last: the image goes when it is no longer mounted.
    _image: TempDir,
}

/// A freeze, until it is dropped. Declare it after what writes to the disk, so that it ends first.
#[must_use = "the disk thaws when this is dropped"]
pub struct Frozen {
    thaw: Option<Sender<()>>,
    thawing: Option<JoinHandle<()>>,
}

impl FrozenDisk {
    /// Mounts an empty file system of `mib` MiB at `mount_point`, which is created if it does not
    /// exist.
    pub fn mount(mount_point: &Path, mib: u64) -> Self {
        std::fs::create_dir_all(mount_point).unwrap();
        let dir = TempDir::with_prefix("mainstay-disk-").unwrap();
        let image = dir.path().join("image");
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(mib << 20).unwrap();
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-F"])
            .arg(&image)
            .status()
            .expect("mkfs.ext4 cannot be run; scripts/setup-test installs e2fsprogs");
        assert!(made.success(), "mkfs.ext4: {made}");
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", &format!("{MOUNT} && {{ {HOLD}; }}")])
            .args([mount_point, &image]);
        Self {
            holder: NamespaceHolder::spawn(command),
            mount_point: mount_point.to_owned(),
            _image: dir,
        }
    }

    /// The mount namespace in which the file system is at its mount point.
    pub fn namespace(&self) -> MountNamespace {
        MountNamespace::of(&self.holder)
    }

    /// The root of the file system as seen from outside its mount namespace.
    pub fn path(&self) -> PathBuf {
        self.namespace().seen(&self.mount_point)
    }

    /// Freezes the file system once everything dirty is written.
    pub fn freeze(&self) -> Frozen {
        fsfreeze("--freeze", &self.path());
        let path = self.path();
        let (thaw, thawed) = mpsc::channel::<()>();
        let thawing = std::thread::spawn(move || {
            let _ = thawed.recv_timeout(MAX_FREEZE);
            fsfreeze("--unfreeze", &path);
        });
        Frozen {
            thaw: Some(thaw),
            thawing: Some(thawing),
        }
    }
}

impl Frozen {
    /// Ends the freeze, and panics if it ended by itself before.
    pub fn thaw(mut self) {
        let thaw = self.thaw.take().unwrap();
        assert!(
            thaw.send(()).is_ok(),
            "the disk was frozen for more than {MAX_FREEZE:?}"
        );
        self.thawing.take().unwrap().join().unwrap();
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        drop(self.thaw.take());
        if let Some(thawing) = self.thawing.take() {
            let _ = thawing.join();
        }
    }
}

fn fsfreeze(option: &str, path: &Path) {
    let status = Command::new("fsfreeze").arg(option).arg(path).status();
    let status = status.expect("fsfreeze cannot be run; it comes with util-linux");
    assert!(status.success(), "fsfreeze {option}: {status}");
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::RecvTimeoutError;

    use super::*;
    use crate::WAIT_TIMEOUT;

    #[test]
    fn writes_block_while_frozen_and_reads_do_not() {
        let dir = TempDir::new().unwrap();
        let disk = FrozenDisk::mount(&dir.path().join("disk"), 16);
        let path = disk.path();
        fs::write(path.join("before"), "before").unwrap();
        assert_eq!(
            fs::read_dir(dir.path().join("disk")).unwrap().count(),
            0,
            "the mount is visible outside its namespace"
        );

        let frozen = disk.freeze();
        assert_eq!(fs::read_to_string(path.join("before")).unwrap(), "before");
        let (done, written) = mpsc::channel();
        let file = path.join("during");
        let writer = std::thread::spawn(move || {
            fs::write(file, "during").unwrap();
            done.send(()).unwrap();
        });
        // The shortest time that shows it blocks; too short a time cannot fail the test wrongly.
        let early = written.recv_timeout(Duration::from_millis(200));
        assert_eq!(early, Err(RecvTimeoutError::Timeout));
        frozen.thaw();
        written.recv_timeout(WAIT_TIMEOUT).unwrap();
        writer.join().unwrap();
        assert_eq!(fs::read_to_string(path.join("during")).unwrap(), "during");
    }

    #[test]
    fn a_dropped_disk_leaves_no_loop_device() {
        let dir = TempDir::new().unwrap();
        let disk = FrozenDisk::mount(dir.path(), 16);
        let image = disk._image.path().to_str().unwrap().to_owned();
        assert!(backing_files().contains(&image));
        let frozen = disk.freeze();
        drop(frozen);
        drop(disk);
        assert!(!backing_files().contains(&image));
    }

    /// The backing files of all loop devices, one a line.
    fn backing_files() -> String {
        let devices = fs::read_dir("/sys/block").unwrap().flatten();
        devices
            .filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok())
            .collect()
    }
}
