//! Sequences: reboot, shutdown, reset, upgrade and their like as ordered phases of tasks.
//!
//! One sequence runs at a time. Its progress is on disk before a task starts and after it has
//! ended, so the next daemon knows after a crash what was done, and continues by the rule of each
//! task ([`AfterCrash`]). A [`platform::Platform`] says how a sequence ends: in the node's own
//! process, or on the machine.
//!
//! This crate knows no gRPC, no cells and no services: tasks are closures of the caller, and events
//! go to an [`Observer`].

mod actor;
mod driver;
mod error;
mod observer;
mod plan;
pub mod platform;
mod record;
mod sequences;
mod store;

pub use actor::{ActorId, BadActorId};
pub use error::{OpenError, StartError};
pub use observer::{Failure, FailureKind, Observer, Progress};
pub use plan::{AfterCrash, Finding, Phase, Plan, Task, TaskError};
pub use record::{Ended, PhaseRecord, SequenceRecord, TaskRecord, TaskState};
pub use sequences::{Interrupted, Opened, Request, Sequences};
