//! The protocol between the daemon and a shim.
//!
//! Shims outlive the daemon that started them, so both ends may be of different versions: fields
//! are only added, with a default, and unknown ones are ignored.

use serde::{Deserialize, Serialize};

use crate::capabilities::Granted;
use crate::name::ExecutableName;
use crate::record::ExecutableRecord;
use crate::seccomp::Filter;
use crate::spec::ExecutableSpec;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Start(Box<StartRequest>),
}

/// Starts an executable. Its file descriptors: the v2 cgroup of the executable, if `unified`; as
/// many v1 `cgroup.procs` as `procs` says; the counter of OOM kills, if `counts_memory_kills`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StartRequest {
    pub(crate) name: ExecutableName,
    /// As requested, for the record.
    pub(crate) spec: ExecutableSpec,
    /// As executed, with all defaults resolved.
    pub(crate) program: Program,
    pub(crate) log_file_bytes: u64,
    pub(crate) log_total_bytes: u64,
    pub(crate) unified: bool,
    pub(crate) procs: usize,
    pub(crate) counts_memory_kills: bool,
}

/// A program with everything that is set up before its exec.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Program {
    /// Candidate paths; the first that exists is executed.
    pub(crate) paths: Vec<String>,
    pub(crate) words: Vec<String>,
    pub(crate) environment: Vec<String>,
    pub(crate) working_directory: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) capabilities: Granted,
    pub(crate) new_privileges: bool,
    pub(crate) filter: Option<Filter>,
    /// Whether it gets a cgroup namespace of its own.
    pub(crate) own_cgroups: bool,
    /// The UIDs and GIDs of the host that its user namespace maps 0 and up to, if it gets one.
    pub(crate) users: Option<UserRange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UserRange {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Started(Box<ExecutableRecord>),
    /// The executable is running already.
    Running,
    NotStarted {
        step: Step,
        errno: i32,
    },
    /// A namespace could not be set up; the shim exits.
    NotIsolated {
        what: String,
        errno: i32,
    },
    Failed {
        what: String,
    },
}

impl Reply {
    pub(crate) fn failed(what: &str) -> Self {
        Self::Failed {
            what: what.to_owned(),
        }
    }
}

/// The step at which the start of an executable failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    Fork,
    Group,
    Users,
    Input,
    WorkingDirectory,
    Identity,
    Capabilities,
    Seccomp,
    Execute,
}

impl Step {
    /// The byte that the forked child reports to the shim.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_number(number: u8) -> Self {
        const ALL: [Step; 9] = [
            Step::Fork,
            Step::Group,
            Step::Users,
            Step::Input,
            Step::WorkingDirectory,
            Step::Identity,
            Step::Capabilities,
            Step::Seccomp,
            Step::Execute,
        ];
        ALL.get(usize::from(number)).copied().unwrap_or(Step::Fork)
    }
}
