//! What can go wrong with cells, by what it means for whoever asked.

use std::io;
use std::path::PathBuf;

use crate::capabilities::CapabilityError;
use crate::cgroup::CgroupError;
use crate::name::{CellName, ExecutableName};
use crate::seccomp::BadProfile;
use crate::spec::BadSpec;
use crate::zygote::BirthError;

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
    Running {
        cell: CellName,
        executable: ExecutableName,
    },
    #[error("cell {cell} cannot be made: {source}; it was not made by this node")]
    NotOurs { cell: CellName, source: CgroupError },
    #[error(
        "cell {cell} cannot be made: {} has the record of one that cannot be read; mend or remove \
         it, and restart the node", path.display()
    )]
    Unreadable { cell: CellName, path: PathBuf },
    #[error("{0}")]
    Cgroup(CgroupError),
    #[error("cells need root: this node runs as an ordinary user")]
    NotRoot,
    #[error("{path}: no such file or directory")]
    ProgramNotFound { path: String },
    #[error("{path}: permission denied")]
    ProgramForbidden { path: String },
    #[error("working directory {path}: {source}")]
    WorkingDirectory { path: String, source: io::Error },
    #[error("{path} cannot be executed: {source}")]
    NotExecutable { path: String, source: io::Error },
    #[error("cell {cell} has no room for another process: its limit is reached")]
    TooManyProcesses { cell: CellName },
    #[error("executable {executable} cannot be started in cell {cell}: cannot {step}: {source}")]
    NotStarted {
        cell: CellName,
        executable: ExecutableName,
        step: &'static str,
        source: io::Error,
    },
    #[error("cell {cell} cannot be isolated: cannot {what}: {source}")]
    NotIsolated {
        cell: CellName,
        what: String,
        source: io::Error,
    },
    #[error("cell {cell} cannot be started: {source}")]
    NotBorn { cell: CellName, source: BirthError },
    #[error("cell {cell} does not answer: {source}")]
    Silent { cell: CellName, source: io::Error },
    #[error("cell {cell}: {what}")]
    Shim { cell: CellName, what: String },
    #[error("{what} of cell {cell} did not end, though killed; it waits in the kernel")]
    Unkillable { cell: CellName, what: String },
    #[error("the records of cell {cell} cannot be written: {source}")]
    Records { cell: CellName, source: io::Error },
    #[error("the work on cell {cell} was broken off; see the node's log")]
    Interrupted { cell: CellName },
}
