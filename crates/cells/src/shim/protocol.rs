//! What the daemon asks a shim. Shims live on while the daemon is upgraded: fields are only ever
//! added, with a default, and unknown ones ignored.

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

/// Its descriptors: the executable's control group of version 2, if there is one; `procs` files
/// of version 1; and what counts kills for lack of memory, if anything does.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StartRequest {
    pub(crate) name: ExecutableName,
    /// As asked for, to be kept.
    pub(crate) spec: ExecutableSpec,
    /// What is executed, ready for the kernel.
    pub(crate) program: Program,
    pub(crate) log_file_bytes: u64,
    pub(crate) log_total_bytes: u64,
    pub(crate) unified: bool,
    pub(crate) procs: usize,
    pub(crate) counts_memory_kills: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Program {
    /// Where it may be; the first that is there is executed.
    pub(crate) paths: Vec<String>,
    pub(crate) words: Vec<String>,
    pub(crate) environment: Vec<String>,
    pub(crate) working_directory: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) capabilities: Granted,
    pub(crate) new_privileges: bool,
    pub(crate) filter: Option<Filter>,
    /// A namespace of control groups of its own.
    pub(crate) own_cgroups: bool,
    /// Users of a namespace of its own: inside 0 is outside this, and so on for as many.
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
    /// It is running already.
    Running,
    NotStarted {
        step: Step,
        errno: i32,
    },
    /// The cell could not be isolated, and is not there.
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

/// Where the start of an executable went wrong.
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
    /// As one byte between a fork and its parent.
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
