//! Logs: one directory per source, with CRI-format files rotated by size.
//!
//! ```text
//! <root>/<source>/                  locked by the one writer
//! <root>/<source>/0000000001.log    a generation
//! <root>/<source>/current           symbolic link to the newest generation
//! ```
//! Files are text in the format of [`crate::cri`], without header or version. They are only appended
//! to and, in the end, deleted: never renamed, rewritten or truncated. A reader is therefore a
//! generation and an offset, and needs no notice from the writer. Log files that other programs
//! write and rotate are read by the same reader, see `foreign`.

mod bisect;
mod chunk;
mod directory;
mod error;
mod file_cursor;
mod file_end;
mod files;
mod follow;
mod foreign;
mod free_space;
mod limits;
mod lines;
mod query;
mod reader;
mod store;
mod stream;
mod tail;
mod window;
mod writer;

pub use chunk::LogChunk;
pub use error::LogError;
pub use limits::{LogLimits, LogRetention};
pub use query::LogQuery;
pub use store::LogStore;
pub use stream::LogStream;
pub use writer::LogWriter;
