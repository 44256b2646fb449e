//! Failures of workload operations, whichever source they come from.

use std::path::PathBuf;

use mainstay_cells::CellError;
use mainstay_containers::ContainerError;
use mainstay_journal::LogError;
use mainstay_supervisor::ServiceError;

use crate::text::shorten;

#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    #[error("container {:?} not found", shorten(id))]
    NoSuchWorkload { id: String },
    #[error("log {:?} was not registered", shorten(id))]
    NoSuchLog { id: String },
    #[error("log {:?} was not registered: {} does not exist", shorten(id), path.display())]
    NoLogFile { id: String, path: PathBuf },
    #[error("cannot read log {:?}", shorten(id))]
    UnreadableLogFile { id: String, source: LogError },
    #[error(
        "the lines of log {:?} carry no timestamps; ask without since and until",
        shorten(id)
    )]
    NoTimestamps { id: String },
    #[error(
        "the log of an executable goes on when it is started again; ask with since instead of \
         previous"
    )]
    NoPreviousRun,
    #[error("log {id:?} is the node's own; only a container has a previous one")]
    NoPreviousLog { id: String },
    #[error("process {pid} was not started by this node")]
    NoSuchProcess { pid: i64 },
    #[error("reading the {what} failed; the node's log says why")]
    Panicked { what: &'static str },
    #[error(transparent)]
    Service(ServiceError),
    #[error(transparent)]
    Cell(#[from] CellError),
    #[error(transparent)]
    Container(ContainerError),
    #[error(transparent)]
    Log(#[from] LogError),
}

impl WorkloadError {
    /// Returns whether the error only says that a runtime is not installed.
    pub(super) fn is_absent_runtime(&self) -> bool {
        matches!(
            self,
            Self::Container(ContainerError::Unreachable { absent: true, .. })
        )
    }
}
