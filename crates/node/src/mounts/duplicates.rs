//! Which mounts `df(1)` leaves out: pseudo file systems, those without a size, and all but one of
//! several mounts of the same file system.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{Mount, Space};

/// Types that never hold files of their own.
const PSEUDO_TYPES: [&str; 12] = [
    "autofs",
    "debugfs",
    "devfs",
    "devpts",
    "fuse.portal",
    "fusectl",
    "kernfs",
    "mqueue",
    "none",
    "proc",
    "rpc_pipefs",
    "sysfs",
];

/// Types of network and cluster file systems; most others are known by their source.
const REMOTE_TYPES: [&str; 9] = [
    "acfs",
    "afs",
    "auristorfs",
    "coda",
    "fhgfs",
    "gpfs",
    "ibrix",
    "ocfs2",
    "vxfs",
];

/// Returns which of the mounts `df(1)` shows only with `--all`.
pub fn hidden(mounts: &[Mount], spaces: &[Space]) -> Vec<bool> {
    let mut hidden = vec![false; mounts.len()];
    let mut shown: HashMap<u64, Vec<usize>> = HashMap::new();
    for (at, (mount, space)) in mounts.iter().zip(spaces).enumerate() {
        if space.size_bytes == 0 || PSEUDO_TYPES.contains(&mount.fs_type.as_str()) {
            hidden[at] = true;
            continue;
        }
        let Some(device) = space.device else {
            continue;
        };
        let same = shown.entry(device).or_default();
        match same.first_mut() {
            Some(first) if is_duplicate(&mounts[*first], mount) => {
                let worse = if is_better(&mounts[*first], mount) {
                    std::mem::replace(first, at)
                } else {
                    at
                };
                hidden[worse] = true;
            }
            _ => same.insert(0, at),
        }
    }
    hidden
}

/// Shares of a server that were mounted under different names are told apart.
fn is_duplicate(shown: &Mount, other: &Mount) -> bool {
    !(is_remote(shown) && is_remote(other) && shown.source != other.source)
}

fn is_remote(mount: &Mount) -> bool {
    mount.source.contains(':')
        || mount.source == "-hosts"
        || mount.source.starts_with("//") && matches!(&*mount.fs_type, "cifs" | "smb3" | "smbfs")
        || REMOTE_TYPES.contains(&mount.fs_type.as_str())
}

/// True if `other` is to be shown instead: it names a device, is nearer the root of the machine
/// without being a deeper part of the file system, or is mounted over the shown one.
fn is_better(shown: &Mount, other: &Mount) -> bool {
    let length = |path: &Path| path.as_os_str().as_bytes().len();
    let names_device = other.source.contains('/') && !shown.source.contains('/');
    let nearer = length(&shown.target) > length(&other.target);
    let deeper_part = length(&shown.root) < length(&other.root);
    let over = shown.target == other.target && shown.source != other.source;
    names_device || nearer && !deeper_part || over
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn mount(source: &str, root: &str, target: &str, fs_type: &str) -> Mount {
        Mount {
            device: "0:1".to_owned(),
            flags: "rw".to_owned(),
            root: PathBuf::from(root),
            target: PathBuf::from(target),
            fs_type: fs_type.to_owned(),
            source: source.to_owned(),
            options: "rw".to_owned(),
        }
    }

    fn shown(mounts: &[(Mount, u64)]) -> Vec<String> {
        let spaces: Vec<Space> = mounts
            .iter()
            .map(|(mount, device)| Space {
                size_bytes: u64::from(mount.fs_type != "cgroup2"),
                device: Some(*device),
                ..Space::default()
            })
            .collect();
        let mounts: Vec<Mount> = mounts.iter().map(|(mount, _)| mount.clone()).collect();
        let hidden = hidden(&mounts, &spaces);
        let all = mounts.iter().zip(hidden);
        all.filter(|(_, hidden)| !hidden)
            .map(|(mount, _)| mount.target.display().to_string())
            .collect()
    }

    #[test]
    fn a_file_system_is_shown_where_it_is_nearest_to_the_root() {
        let disk = |root, target| (mount("/dev/sda1", root, target, "ext4"), 1);
        let all = [
            disk("/data", "/srv/data"),
            disk("/", "/"),
            disk("/", "/mnt/again"),
            (mount("proc", "/", "/proc", "proc"), 2),
            (mount("cgroup2", "/", "/sys/fs/cgroup", "cgroup2"), 3),
            (mount("tmpfs", "/", "/run", "tmpfs"), 4),
            (mount("tmpfs", "/", "/tmp", "tmpfs"), 5),
        ];
        assert_eq!(shown(&all), ["/", "/run", "/tmp"]);
        // A short path to a part of it is not better than the whole.
        let part = [disk("/", "/mnt/whole"), disk("/part", "/p")];
        assert_eq!(shown(&part), ["/mnt/whole"]);
    }

    #[test]
    fn shares_of_a_server_are_told_apart() {
        let share = |source, target| (mount(source, "/", target, "nfs4"), 7);
        let all = [
            share("nas:/a", "/a"),
            share("nas:/b", "/b"),
            share("nas:/b", "/bb"),
        ];
        assert_eq!(shown(&all), ["/a", "/b"]);
    }

    #[test]
    fn a_mount_over_another_hides_it() {
        let all = [
            (mount("tmpfs", "/", "/x", "tmpfs"), 9),
            (mount("other", "/", "/x", "tmpfs"), 9),
        ];
        assert_eq!(shown(&all), ["/x"]);
    }
}
