//! Errors of cells, one variant per meaning for the caller.

use std::io;

use crate::capabilities::CapabilityError;
use crate::cgroup::CgroupError;
use crate::name::{CellName, ExecutableName};
use crate::seccomp::BadProfile;
use crate::spec::BadSpec;
use crate::zygote::ForkShimError;

#[derive(Debug, thiserror::Error)]
pub enum CellError {
    #[error(transparent)]
    Spec(#[from] BadSpec),
    #[error(transparent)]
    Capabilities(#[from] CapabilityError),
    #[error(transparent)]
    Seccomp(#[from] BadProfile),
    #[error("cell {cell} does not exist")]
    NoSuchCell { cell: CellName },
    #[error("cell {cell} has no executable {executable}")]
    NoSuchExecutable {
        cell: CellName,
        executable: ExecutableName,
    },
    #[error("cell {cell} exists already")]
    CellExists { cell: CellName },
    #[error("executable {executable} is running already in cell {cell}; stop it first")]
    AlreadyRunning {
        cell: CellName,
        executable: ExecutableName,
    },
    #[error("cannot allocate cell {cell}: another program owns its cgroup")]
    ForeignCgroup { cell: CellName, source: CgroupError },
    #[error(
        "cell {cell} exists, but its record is unreadable: {reason}; remove the cell with \
         \"mainstay cell free {cell}\""
    )]
    Unreadable { cell: CellName, reason: String },
    #[error(transparent)]
    Cgroup(CgroupError),
    #[error("cells need root; this node runs as an unprivileged user")]
    NotRoot,
    #[error("{path}: no such file or directory")]
    ProgramNotFound { path: String },
    #[error("{path}: permission denied")]
    ProgramNotPermitted { path: String },
    #[error("cannot enter working directory {path}")]
    WorkingDirectory { path: String, source: io::Error },
    #[error("cannot execute {path}")]
    ExecFailed { path: String, source: io::Error },
    #[error("cell {cell} has reached its limit of processes")]
    TooManyProcesses { cell: CellName },
    #[error("cannot start executable {executable} in cell {cell}: cannot {step}")]
    NotStarted {
        cell: CellName,
        executable: ExecutableName,
        step: &'static str,
        source: io::Error,
    },
    #[error("cannot isolate cell {cell}: cannot {operation}")]
    NotIsolated {
        cell: CellName,
        operation: String,
        source: io::Error,
    },
    #[error("cannot start the shim of cell {cell}")]
    NoShim {
        cell: CellName,
        source: ForkShimError,
    },
    #[error("the shim of cell {cell} does not answer")]
    ShimUnresponsive { cell: CellName, source: io::Error },
    #[error("the shim of cell {cell} failed: {what}")]
    ShimFailed { cell: CellName, what: String },
    #[error(
        "executable {executable} of cell {cell} has neither a standard input nor a terminal; start \
         it with one"
    )]
    NotAttachable {
        cell: CellName,
        executable: ExecutableName,
    },
    #[error("executable {executable} of cell {cell} has too many attachments; close one of them")]
    TooManyAttachments {
        cell: CellName,
        executable: ExecutableName,
    },
    #[error(
        "the shim of cell {cell} is of an earlier build and cannot give an executable a standard \
         input or a terminal: {what}; free the cell and allocate it again"
    )]
    EarlierShim { cell: CellName, what: String },
    #[error("{process} of cell {cell} survived SIGKILL (uninterruptible sleep)")]
    Unkillable { cell: CellName, process: String },
    #[error("cannot write the records of cell {cell}")]
    RecordIo { cell: CellName, source: io::Error },
    #[error("the work on cell {cell} was interrupted; see the node's log")]
    Interrupted { cell: CellName },
    #[error("the call on cell {cell} was cancelled before it began; nothing was changed")]
    Cancelled { cell: CellName },
}
