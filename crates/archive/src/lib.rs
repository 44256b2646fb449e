//! Tar archives in the PAX format: extended attributes, ACLs, hard links, sparse files, devices and
//! exact times.
//!
//! The writer never touches a file system; it archives what it is given. The reader accepts any
//! bytes: an archive that is no archive is an error, never a panic. Unpacking stays below its
//! directory and writes through no symbolic link, whatever the archive says.

mod acl;
mod member;
mod pax;
mod reader;
mod report;
mod root;
mod sparse;
#[cfg(test)]
mod tests;
mod unpack;
mod writer;

pub use member::{Content, Member, Time};
pub use reader::Reader;
pub use report::Report;
pub use root::{root_field, root_of_field};
pub use sparse::{Segment, holes_of};
pub use unpack::unpack;
pub use writer::Writer;
