//! Upgrade and rollback with two slots.
//!
//! [`Image`] reads and [`ImageWriter`] writes upgrade images. [`Slots`] keeps two binaries and the
//! record that says which of them a node runs. [`start`] is the rule that every start of the daemon
//! follows; a binary on trial runs as the child of a guard, which returns to the other slot if the
//! trial fails.
//!
//! Nothing here knows gRPC or needs a runtime: the rule and the guard run before there is one.

mod digest;
mod elf;
mod guard;
mod image;
mod record;
mod stamp;
mod start;
mod store;
mod sys;
mod trial;
mod upload;

pub use digest::{BadDigest, Digest};
pub use elf::own_architecture;
pub use image::{
    BINARY, Binary, DEFAULT_BINARY, Image, ImageError, ImageWriter, KeyError, STATE_FORMAT,
    SigningKey, VerifyingKey, WriteError,
};
pub use record::{
    Content, Installed, Origin, Outcome, SlotName, SlotRecord, Switch, SwitchKind, Trial,
};
pub use stamp::{BuildFacts, Stamp};
pub use start::{Begin, start};
pub use store::{Received, Request, Slots, SlotsError, StateFormats};
pub use trial::{TrialChannel, TrialError};
pub use upload::{MAX_UPLOAD_BYTES, Upload, Uploaded};

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a file without a name in `directory`; the kernel removes it with its last descriptor.
pub(crate) fn scratch_file(directory: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    options.custom_flags(libc::O_TMPFILE);
    options.open(directory)
}
