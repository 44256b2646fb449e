//! Files of the machine: walking a tree, its disk usage, reading a file, archiving a tree.
//!
//! Nothing is ever written, and no symbolic link below the root is followed, also while others rename
//! what is being read.

mod archive;
mod content;
mod descent;
mod read;
mod usage;
mod walk;
mod xattrs;

pub use archive::{Left, pack};
pub use read::{ReadError, open_regular, read_piece};
pub use usage::{Usage, UsageOptions, UsageWalk};
pub use walk::{Entry, Facts, Kind, Walk, WalkOptions};
