//! Owners of sockets, by one scan of the file descriptors of every process.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags, RawDir, open, openat, readlinkat};

use crate::processes::{lossy, pids};
use crate::text::{number, read_small};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub pid: i32,
    /// The name of the process, `comm`.
    pub name: String,
}

/// Returns the owner of each socket by inode; of several, the one with the lowest PID, usually the
/// oldest. Processes that exit or deny access are left out.
pub fn owners() -> io::Result<HashMap<u64, Owner>> {
    let proc = open("/proc", DIRECTORY, Mode::empty())?;
    let mut owners = HashMap::new();
    for pid in pids(proc.as_fd())? {
        let inodes = sockets_of(proc.as_fd(), pid).unwrap_or_default();
        if inodes.is_empty() {
            continue;
        }
        let owner = Owner {
            pid,
            name: name(proc.as_fd(), pid),
        };
        for inode in inodes {
            owners.entry(inode).or_insert_with(|| owner.clone());
        }
    }
    Ok(owners)
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

fn sockets_of(proc: BorrowedFd<'_>, pid: i32) -> io::Result<Vec<u64>> {
    let dir = openat(proc, format!("{pid}/fd"), DIRECTORY, Mode::empty())?;
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&dir, &mut space);
    let mut inodes = Vec::new();
    let mut target = Vec::with_capacity(64);
    while let Some(entry) = entries.next() {
        let Ok(link) = readlinkat(&dir, entry?.file_name(), target) else {
            target = Vec::with_capacity(64);
            continue;
        };
        inodes.extend(socket_inode(link.as_bytes()));
        target = link.into_bytes();
    }
    Ok(inodes)
}

/// Parses the inode in `socket:[12345]`.
fn socket_inode(target: &[u8]) -> Option<u64> {
    number(target.strip_prefix(b"socket:[")?.strip_suffix(b"]")?)
}

fn name(proc: BorrowedFd<'_>, pid: i32) -> String {
    let mut comm = Vec::new();
    match read_small(proc, &format!("{pid}/comm"), 256, &mut comm) {
        Ok(()) => lossy(comm.trim_ascii_end()),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn this_process_owns_its_open_socket() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let file = std::fs::File::from(std::os::fd::OwnedFd::from(socket));
        let inode = file.metadata().unwrap().ino();
        let own = owners().unwrap().remove(&inode).unwrap();
        assert_eq!(u32::try_from(own.pid), Ok(std::process::id()));
        let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(own.name, comm.trim_end());
    }

    #[test]
    fn only_socket_links_yield_an_inode() {
        assert_eq!(socket_inode(b"socket:[17]"), Some(17));
        for other in ["pipe:[17]", "socket:[]", "socket:[17", "/socket:[17]", ""] {
            assert_eq!(socket_inode(other.as_bytes()), None, "{other}");
        }
    }
}
