//! Masks over paths that no cell may see, wherever they are mounted: the node's state and the kernel's own file systems.
//!
//! The places are found in the mount table, not by path alone: the same file system may be mounted
//! in several places, and root in a cell may open every file it finds a path to.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use mainstay_mounts::Mount;
use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, mount_bind, move_mount,
};

use crate::sys::{self, MountRestriction};

/// The source of the empty file systems that hide others, as the mount table shows it.
const COVER: &str = "mainstay-hidden";
/// File systems through which root changes the machine: read-only below `/sys`, hidden elsewhere.
/// Below `/proc` they are hidden by the cell's own `/proc`.
const OF_THE_KERNEL: [&str; 16] = [
    "proc",
    "sysfs",
    "cgroup",
    "cgroup2",
    "debugfs",
    "tracefs",
    "securityfs",
    "selinuxfs",
    "configfs",
    "bpf",
    "efivarfs",
    "pstore",
    "binfmt_misc",
    "fusectl",
    "nfsd",
    "mqueue",
];

/// The operation that failed, and its error.
pub(crate) type Failure = (String, io::Error);

/// Which mount namespace is masked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// The one of a cell of its own.
    Cell,
    /// The host's, as cells see it that share it: the hidden directories are, and what changes the
    /// machine or a cell's limits is read-only.
    Host,
}

/// The directories that no cell may see.
#[derive(Debug, Default)]
pub(crate) struct Masks {
    hidden: Vec<HiddenDirectory>,
    /// Whether cells have a `/dev` of their own, and no device elsewhere.
    pub(crate) own_dev: bool,
}

/// A directory by its place in its file system.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HiddenDirectory {
    device: String,
    inner: PathBuf,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mask {
    Hide(PathBuf),
    ReadOnly(PathBuf),
    NoDevices(PathBuf),
}

impl Masks {
    /// Finds the directories in their file systems, before anything hides them.
    pub(crate) fn find(directories: &[PathBuf]) -> io::Result<Self> {
        let table = read_table()?;
        let find = |path: &PathBuf| HiddenDirectory::find(&table, &resolved(path));
        Ok(Self {
            hidden: directories.iter().filter_map(find).collect(),
            own_dev: false,
        })
    }

    /// Where this mount namespace would show hidden directories if they existed.
    pub(crate) fn absent(&self) -> Result<Vec<PathBuf>, Failure> {
        let table = read_table().map_err(unreadable_table)?;
        let visible = visible(&table);
        let places = visible.values().flat_map(|mount| {
            let hidden = self.hidden.iter();
            hidden.filter_map(|hidden| hidden.seen_through(mount))
        });
        let absent: BTreeSet<PathBuf> = places.filter(|at| !exists(at)).collect();
        Ok(absent.into_iter().collect())
    }

    /// Masks everything that this mount namespace shows and a cell may not see.
    pub(crate) fn apply(&self, view: View) -> Result<(), Failure> {
        let table = read_table().map_err(unreadable_table)?;
        for mask in self.of(&table, view, exists) {
            mask.apply()?;
        }
        Ok(())
    }

    fn of(&self, table: &[Mount], view: View, exists: impl Fn(&Path) -> bool) -> Vec<Mask> {
        let mut masks = Vec::new();
        let visible = visible(table);
        for mount in visible.values() {
            masks.extend(match view {
                View::Cell => self.of_mount(mount),
                View::Host => of_shared_mount(mount),
            });
            for hidden in &self.hidden {
                let at = hidden.seen_through(mount);
                let is_new = |at: &PathBuf| {
                    let is_covered = visible.get(at.as_path()).is_some_and(|over| is_cover(over));
                    !is_covered && exists(at) && !masks.contains(&Mask::Hide(at.clone()))
                };
                masks.extend(at.filter(is_new).map(Mask::Hide));
            }
        }
        masks
    }

    /// The mask of a mount as a whole.
    fn of_mount(&self, mount: &Mount) -> Option<Mask> {
        let at = &mount.target;
        if OF_THE_KERNEL.contains(&mount.fs_type.as_str()) {
            if at.starts_with("/proc") {
                return None;
            }
            if !at.starts_with("/sys") {
                return Some(Mask::Hide(at.clone()));
            }
        }
        if at.starts_with("/sys") && !mount.has_flag("ro") {
            return Some(Mask::ReadOnly(at.clone()));
        }
        let devices = self.own_dev && !mount.has_flag("nodev");
        let elsewhere = !["/dev", "/proc", "/sys"]
            .iter()
            .any(|dir| at.starts_with(dir));
        (devices && elsewhere).then(|| Mask::NoDevices(at.clone()))
    }
}

/// The mask of a mount for a cell that shares the mounts of the host. Through cgroups it could raise
/// its own limits, through the others change the machine.
fn of_shared_mount(mount: &Mount) -> Option<Mask> {
    let kind = mount.fs_type.as_str();
    let changes_the_machine = OF_THE_KERNEL.contains(&kind) && !["proc", "mqueue"].contains(&kind);
    let masked = changes_the_machine && !mount.has_flag("ro");
    masked.then(|| Mask::ReadOnly(mount.target.clone()))
}

impl HiddenDirectory {
    fn find(table: &[Mount], path: &Path) -> Option<Self> {
        let visible = visible(table);
        let mount = path.ancestors().find_map(|at| visible.get(at))?;
        Some(Self {
            device: mount.device.clone(),
            inner: join(&mount.root, path.strip_prefix(&mount.target).ok()?),
        })
    }

    /// The path at which a mount shows the directory, or a part of it.
    fn seen_through(&self, mount: &Mount) -> Option<PathBuf> {
        if mount.device != self.device {
            return None;
        }
        if let Ok(rest) = self.inner.strip_prefix(&mount.root) {
            return Some(join(&mount.target, rest));
        }
        mount
            .root
            .starts_with(&self.inner)
            .then(|| mount.target.clone())
    }
}

impl Mask {
    fn apply(&self) -> Result<(), Failure> {
        let (done, operation, path) = match self {
            Self::Hide(path) => (hide(path), "hide", path),
            Self::ReadOnly(path) => (
                restrict(path, MountRestriction::ReadOnly),
                "make read-only:",
                path,
            ),
            Self::NoDevices(path) => (
                restrict(path, MountRestriction::NoDevices),
                "disable devices in",
                path,
            ),
        };
        match done {
            // Unmounted meanwhile, or not reachable by its path: there is nothing to see.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.map_err(|error| (format!("{operation} {}", path.display()), error)),
        }
    }
}

/// Reads the mounts of the calling thread's namespace.
fn read_table() -> io::Result<Vec<Mount>> {
    let table = std::fs::read("/proc/thread-self/mountinfo")?;
    Ok(mainstay_mounts::parse(&table))
}

fn unreadable_table(error: io::Error) -> Failure {
    ("read the mount table".to_owned(), error)
}

pub(super) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// The mounts that no later one covers entirely, by their mount points.
fn visible(table: &[Mount]) -> BTreeMap<&Path, &Mount> {
    let mounts = table.iter().map(|mount| (mount.target.as_path(), mount));
    mounts.collect()
}

fn is_cover(mount: &Mount) -> bool {
    mount.fs_type == "tmpfs" && mount.source == COVER
}

fn join(base: &Path, rest: &Path) -> PathBuf {
    match rest.as_os_str().is_empty() {
        true => base.to_owned(),
        false => base.join(rest),
    }
}

/// Resolves the part of a path that exists.
fn resolved(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (ancestor.canonicalize(), path.strip_prefix(ancestor)) {
            return join(&real, rest);
        }
    }
    path.to_owned()
}

/// Mounts something empty over a file or directory.
fn hide(path: &Path) -> io::Result<()> {
    if !path.metadata()?.is_dir() {
        return Ok(mount_bind("/dev/null", path)?);
    }
    let file_system = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&file_system, "source", COVER)?;
    fsconfig_set_string(&file_system, "mode", "0555")?;
    fsconfig_set_string(&file_system, "size", "4k")?;
    fsconfig_create(&file_system)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let cover: OwnedFd = fsmount(&file_system, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let empty_path = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(move_mount(&cover, "", CWD, path, empty_path)?)
}

fn restrict(path: &Path, restriction: MountRestriction) -> io::Result<()> {
    sys::restrict_mounts(&CString::new(path.as_os_str().as_bytes())?, restriction)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
23 27 0:22 / /sys rw,relatime - sysfs sysfs rw
24 27 0:6 / /dev rw,relatime - devtmpfs devtmpfs rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
41 23 0:38 / /sys/fs/cgroup ro,nosuid,nodev - cgroup2 cgroup2 rw
50 27 254:0 /var /mnt/var rw,nodev - ext4 /dev/vda rw
51 27 254:0 /var/lib/node/pki /mnt/keys rw,nodev - ext4 /dev/vda rw
52 27 0:21 / /srv/root/proc rw,nodev - proc proc rw
53 27 0:22 /kernel /srv/root/kernel rw,nodev - sysfs sysfs rw
54 27 254:1 / /mnt/other rw,nodev - ext4 /dev/vdb rw
";

    fn masks(own_dev: bool) -> (Vec<Mount>, Masks) {
        let table = mainstay_mounts::parse(TABLE.as_bytes());
        let hidden = HiddenDirectory::find(&table, Path::new("/var/lib/node")).unwrap();
        let hidden = vec![hidden];
        (table, Masks { hidden, own_dev })
    }

    fn sorted(mut masks: Vec<Mask>) -> Vec<Mask> {
        masks.sort();
        masks
    }

    fn hide(path: &str) -> Mask {
        Mask::Hide(path.into())
    }

    #[test]
    fn state_and_kernel_file_systems_are_masked_wherever_they_are_mounted() {
        let (table, masks) = masks(false);
        let found = masks.of(&table, View::Cell, |_| true);
        let expected = [
            Mask::ReadOnly("/sys".into()),
            hide("/var/lib/node"),
            hide("/mnt/var/lib/node"),
            hide("/mnt/keys"),
            hide("/srv/root/proc"),
            hide("/srv/root/kernel"),
        ];
        assert_eq!(sorted(found), sorted(expected.into()));
        let found = masks.of(&table, View::Host, |_| true);
        let expected = [
            Mask::ReadOnly("/sys".into()),
            Mask::ReadOnly("/srv/root/kernel".into()),
            hide("/var/lib/node"),
            hide("/mnt/var/lib/node"),
            hide("/mnt/keys"),
        ];
        assert_eq!(sorted(found), sorted(expected.into()));
    }

    #[test]
    fn what_is_masked_or_missing_is_not_masked_again() {
        let (_, masks) = masks(true);
        let covered = TABLE
            .replace("/sys rw,", "/sys ro,")
            .replace("/ / rw", "/ / rw,nodev")
            + "60 27 0:60 / /var/lib/node ro - tmpfs mainstay-hidden ro\n\
               61 27 0:60 / /srv/root/proc ro,nodev - tmpfs mainstay-hidden ro\n\
               62 27 0:60 / /srv/root/kernel ro,nodev - tmpfs mainstay-hidden ro\n\
               63 27 0:60 / /mnt/keys ro,nodev - tmpfs mainstay-hidden ro\n\
               64 27 0:61 / /mnt/disk rw - tmpfs tmpfs rw\n";
        let table = mainstay_mounts::parse(covered.as_bytes());
        let found = masks.of(&table, View::Cell, |path| !path.starts_with("/mnt/var"));
        let expected = [
            Mask::NoDevices("/var/lib/node".into()),
            Mask::NoDevices("/mnt/disk".into()),
        ];
        assert_eq!(sorted(found), sorted(expected.into()));
    }
}
