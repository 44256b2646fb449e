//! Files of the machine: walking a tree, reading a file, packing a tree into an archive.
//!
//! Nothing here is ever written to, and no link below the root is followed.

mod archive;
mod read;
mod walk;

pub use archive::{Left, pack};
pub use read::{ReadError, open_regular};
pub use walk::{Entry, Facts, Kind, Walk, WalkOptions};
