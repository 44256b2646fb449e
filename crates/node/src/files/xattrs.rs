//! Extended attributes of an entry, without unreadable ones; many file systems have none.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// The largest list of names and the largest value the kernel allows.
const MAX_BYTES: usize = 64 << 10;
/// The attributes of one entry that are returned.
const MAX_TOTAL_BYTES: usize = 1 << 20;

/// Names and values.
pub(super) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Reads attributes; its memory is reused from entry to entry.
#[derive(Debug, Default)]
pub(super) struct XattrReader {
    list: Vec<u8>,
    value: Vec<u8>,
}

impl XattrReader {
    /// Reads the attributes of an open file.
    pub(super) fn of_file(&mut self, file: impl AsFd) -> io::Result<Xattrs> {
        self.read(
            |list| rustix::fs::flistxattr(&file, list),
            |name, value| rustix::fs::fgetxattr(&file, name, value),
        )
    }

    /// Reads the attributes of what is at `path`, without following it.
    pub(super) fn of_entry(&mut self, path: &Path) -> io::Result<Xattrs> {
        self.read(
            |list| rustix::fs::llistxattr(path, list),
            |name, value| rustix::fs::lgetxattr(path, name, value),
        )
    }

    /// Reads the attributes of what `path` leads to.
    pub(super) fn of_target(&mut self, path: &Path) -> io::Result<Xattrs> {
        self.read(
            |list| rustix::fs::listxattr(path, list),
            |name, value| rustix::fs::getxattr(path, name, value),
        )
    }

    /// Fails only if the attributes are more than an archive or an answer should carry.
    fn read(
        &mut self,
        list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
        get: impl Fn(&[u8], &mut [u8]) -> rustix::io::Result<usize>,
    ) -> io::Result<Xattrs> {
        self.list.resize(MAX_BYTES, 0);
        let Ok(length) = list(&mut self.list) else {
            return Ok(Vec::new());
        };
        if length == 0 {
            return Ok(Vec::new());
        }
        self.value.resize(MAX_BYTES, 0);
        let names = self.list.get(..length).unwrap_or_default();
        let mut xattrs = Vec::new();
        let mut total = 0;
        for name in names
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
        {
            let Ok(length) = get(name, &mut self.value) else {
                continue;
            };
            total += name.len() + length;
            if total > MAX_TOTAL_BYTES {
                return Err(io::Error::other("more than 1 MiB of extended attributes"));
            }
            let value = self.value.get(..length).unwrap_or_default();
            xattrs.push((name.to_vec(), value.to_vec()));
        }
        Ok(xattrs)
    }
}
