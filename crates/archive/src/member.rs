//! An entry of an archive.

use crate::Segment;

/// An entry and everything known of it but its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Relative to the root of the archive; a directory's has no slash at the end.
    pub name: Vec<u8>,
    pub content: Content,
    /// Permissions and the set-user-ID, set-group-ID and sticky bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub modified: Time,
    /// Names and values; ACLs and capabilities are among them, as the kernel has them.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A file whose data are that many bytes.
    Regular {
        size: u64,
    },
    /// A file of `size` bytes; its data are those of the segments, the rest are holes.
    Sparse {
        size: u64,
        segments: Vec<Segment>,
    },
    Directory,
    /// The target as written in the link.
    Symlink {
        target: Vec<u8>,
    },
    /// Another name of a member before it.
    HardLink {
        target: Vec<u8>,
    },
    Fifo,
    CharDevice {
        major: u32,
        minor: u32,
    },
    BlockDevice {
        major: u32,
        minor: u32,
    },
}

/// A time as in `stat`: nanoseconds count forward also before 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Time {
    pub seconds: i64,
    pub nanoseconds: u32,
}
