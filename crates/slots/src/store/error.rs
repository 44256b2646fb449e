//! The reasons a switch is refused.

use std::io;
use std::path::PathBuf;

use mainstay_records::RecordError;

use crate::{BuildFacts, Digest, ImageError, SlotName, SwitchKind};

/// The reason a switch is refused or fails.
#[derive(Debug, thiserror::Error)]
pub enum SlotsError {
    /// The record cannot be read.
    #[error("cannot read the slot record")]
    Record(#[from] RecordError),
    /// A file of the slots cannot be written.
    #[error("cannot write {}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the write.
        source: io::Error,
    },
    /// The image is refused.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The own binary cannot be read.
    #[error("cannot read the binary of this daemon")]
    OwnBinary(#[source] io::Error),
    /// The own binary has no stamp.
    #[error("the binary of this daemon has no build stamp; it cannot be kept in a slot")]
    OwnStamp,
    /// The state would be unreadable for one of the two binaries.
    #[error(
        "version {version} uses state format {wanted}, this node has {from} to {to}; upgrade to a \
         release in between first"
    )]
    StateFormat {
        /// The version that is refused.
        version: String,
        /// Its format.
        wanted: u64,
        /// The format of the state directory.
        from: u64,
        /// The newest format that the running build reads.
        to: u64,
    },
    /// The image holds the binary that runs.
    #[error("version {version} ({digest}) runs already; use force to start it again")]
    SameBinary {
        /// The version.
        version: String,
        /// The digest of the binary.
        digest: Digest,
    },
    /// Another switch is due.
    #[error("cannot {wanted}: a trial of slot {slot} (version {version}) is under way")]
    TrialPending {
        /// The switch that was asked for.
        wanted: SwitchKind,
        /// The slot on trial.
        slot: SlotName,
        /// Its version.
        version: String,
    },
    /// There is nothing to roll back to.
    #[error("cannot rollback: {0}")]
    NoOtherSlot(String),
}

/// The state formats that a binary must understand.
#[derive(Debug, Clone, Copy)]
pub struct StateFormats {
    /// The format of the state directory.
    pub on_disk: u64,
    /// The newest that the running build reads.
    pub supported: u64,
}

impl StateFormats {
    pub(super) fn check(&self, facts: &BuildFacts) -> Result<(), SlotsError> {
        if (self.on_disk..=self.supported).contains(&facts.state_format) {
            return Ok(());
        }
        Err(SlotsError::StateFormat {
            version: facts.version.clone(),
            wanted: facts.state_format,
            from: self.on_disk,
            to: self.supported,
        })
    }
}
