//! The unix socket for clients of Aurae, which speak mTLS on it.
//!
//! Any local user may connect, as on loopback: the certificate is the identity. The path is the
//! operator's and may be shared with another daemon, so nothing but a stale socket is replaced there.

use std::fs::{DirBuilder, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::UnixListener;

/// A socket file created by this process.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// Binds the socket; creates its directory if that does not exist.
pub(super) fn bind(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    if let Some(parent) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(parent)?;
    }
    remove_stale(path)?;
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o666))?;
    let file = SocketFile::new(path, &std::fs::symlink_metadata(path)?);
    Ok((listener, file))
}

/// Takes over the file of a socket that the daemon before has bound to `path`.
pub(super) fn adopt(path: &Path) -> io::Result<SocketFile> {
    Ok(SocketFile::new(path, &std::fs::symlink_metadata(path)?))
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            let why = "it exists and is not a socket; remove it or choose another path";
            Err(io::Error::new(ErrorKind::AlreadyExists, why))
        }
        Ok(_) if is_served(path)? => {
            let why = "another program serves it; stop that program or choose another path";
            Err(io::Error::new(ErrorKind::AddrInUse, why))
        }
        Ok(_) => std::fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns whether a program listens on the socket. Does not wait for one that accepts nothing.
fn is_served(path: &Path) -> io::Result<bool> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS | Errno::PROTOTYPE) => Ok(true),
        Err(Errno::CONNREFUSED) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl SocketFile {
    fn new(path: &Path, metadata: &Metadata) -> Self {
        Self {
            path: path.to_owned(),
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file, unless another has taken its place.
    pub fn remove(&self) {
        let present = std::fs::symlink_metadata(&self.path);
        if present.is_ok_and(|now| (now.dev(), now.ino()) == (self.device, self.inode)) {
            // Another program may have removed it just now.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_served_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below/aurae.sock");
        let (listener, file) = bind(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o666);
        assert_eq!(bind(&path).unwrap_err().kind(), ErrorKind::AddrInUse);

        drop(listener);
        let (_listener, again) = bind(&path).unwrap();
        again.remove();
        assert!(!path.exists());
        file.remove();
    }

    #[tokio::test]
    async fn a_file_of_others_is_neither_replaced_nor_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("aurae.sock");
        std::fs::write(&path, "precious").unwrap();
        assert_eq!(bind(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);

        let target = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &target).unwrap();
        assert_eq!(bind(&target).unwrap_err().kind(), ErrorKind::AlreadyExists);

        std::fs::remove_file(&path).unwrap();
        let (_listener, file) = bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "of another").unwrap();
        file.remove();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "of another");
    }
}
