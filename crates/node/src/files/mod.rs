//! Files of the machine: walking a tree, adding up what it takes, reading a file, packing a tree
//! into an archive.
//!
//! Nothing here is ever written to, and no link below the root is followed.

mod archive;
mod descent;
mod read;
mod usage;
mod walk;

pub use archive::{Left, pack};
pub use read::{ReadError, open_regular, read_piece};
pub use usage::{Usage, UsageOptions, UsageWalk};
pub use walk::{Entry, Facts, Kind, Walk, WalkOptions};
