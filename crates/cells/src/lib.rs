//! Cells: isolated executables that outlive the daemon.

pub mod capabilities;
pub mod cgroup;
mod engine;
mod frame;
mod limits;
mod name;
mod record;
pub mod seccomp;
mod shim;
mod spec;
mod sys;
pub mod zygote;

pub use engine::{
    Allocated, AttachOptions, Attachment, AttachmentReader, AttachmentWriter, CellError, CellEvent,
    CellEvents, CellStatus, Cells, FoundRun, OpenError, Settings, StopOptions, Usage,
};
pub use limits::{
    BadLimit, CpuList, CpuMax, CpuShares, Device, IoLimit, IoLimits, IoRates, Limits, MemoryLimits,
};
pub use name::{BadCellName, BadExecutableName, CellName, ExecutableName, digest};
pub use record::{CellRecord, ExecutableRecord, ExitStatus, Run, RunEnd};
pub use shim::attachment::{MAX_DATA_BYTES, ShimMessage};
pub use shim::protocol::Attached;
pub use spec::{BadSpec, CellSpec, ExecutableSpec, Namespace, TerminalSize};
