//! The protocol between the daemon and a shim.
//!
//! Shims outlive the daemon that started them, so both ends may be of different builds: fields are
//! only added, with a default, and unknown ones are ignored. A change that the other end would
//! misread raises [`VERSION`].
//!
//! Version 1 carries no version. A request names its version inside its variant, where version 1
//! ignores it; a reply is in an envelope with its version, unless the request was of version 1.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};

use crate::capabilities::Granted;
use crate::frame::{self, VersionHeader, Versioned, check_version};
use crate::name::ExecutableName;
use crate::record::ExecutableRecord;
use crate::seccomp::Filter;
use crate::spec::ExecutableSpec;

/// The protocol version of this build.
pub(crate) const VERSION: u64 = 3;
/// The version of requests that a shim of version 2 understands.
pub(crate) const VERSION_2: u64 = 2;
/// The version of a request that carries none.
const UNVERSIONED: u64 = 1;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Start(Box<StartRequest>),
    /// Waits until every process that the shim has started is reaped. Since version 3.
    Reap {
        version: u64,
    },
    /// Attaches the connection to an executable, see [`super::attachment`]. Since version 3.
    Attach(AttachRequest),
    /// Asks for a record that the shim cannot write; replied to as a start. Older shims do not know
    /// it, and reply that they cannot read it.
    Report(ReportRequest),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReportRequest {
    pub(crate) version: u64,
    pub(crate) name: ExecutableName,
}

/// Attaches to the standard input and the terminal of a run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AttachRequest {
    pub(crate) version: u64,
    pub(crate) name: ExecutableName,
    /// The run, by its start time.
    pub(crate) started: i64,
    /// The offset of the first byte of terminal output to send; older bytes may be gone.
    pub(crate) output_offset: u64,
    /// Whether it takes over the standard input from the attachment that has it.
    pub(crate) stdin: bool,
}

/// The state of a run that a connection is attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Bytes of standard input that were accepted so far: the next one has this offset.
    pub stdin_accepted: u64,
    /// The offset of the first byte of terminal output that will be sent.
    pub output_offset: u64,
}

/// Starts an executable. Its file descriptors: the v2 cgroup of the executable, if `unified`; as
/// many v1 `cgroup.procs` as `procs` says; the counter of OOM kills, if `counts_memory_kills`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StartRequest {
    #[serde(default = "unversioned")]
    pub(crate) version: u64,
    pub(crate) name: ExecutableName,
    /// As requested, for the record.
    pub(crate) spec: ExecutableSpec,
    /// As executed, with all defaults resolved.
    pub(crate) program: Program,
    pub(crate) log_file_bytes: u64,
    pub(crate) log_total_bytes: u64,
    /// The share of the file system, in percent, that logs leave free. Older daemons send none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) log_keep_free: u8,
    /// Whether the daemon reads a log that is missing as an empty one. Older daemons do not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) log_with_first_line: bool,
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
    /// Whether it gets the built-in filter of the shim's build instead. Sent only to a shim that the
    /// daemon has forked itself: older ones do not know it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) builtin_filter: bool,
    /// Whether it gets a cgroup namespace of its own.
    pub(crate) own_cgroups: bool,
    /// Whether it sees processes of the host, which it may then neither trace nor signal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) sees_host_processes: bool,
    /// The UIDs and GIDs of the host that its user namespace maps 0 and up to, if it gets one.
    pub(crate) users: Option<UserRange>,
    /// Whether it keeps the capabilities of the daemon as far as its UID has them, and gets no
    /// seccomp filter.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unconfined: bool,
    /// Supplementary groups of an unconfined program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) groups: Vec<u32>,
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
    /// Every process has been reaped. Since version 3.
    Reaped,
    /// From here on the connection carries messages of an attachment. Since version 3.
    Attached(Attached),
    /// The run has ended, and nothing of its terminal output is left to send. Since version 3.
    Ended,
    /// The executable has neither a standard input nor a terminal. Since version 3.
    NotAttachable,
    /// The executable has too many attachments. Since version 3.
    TooManyAttachments,
    Failed {
        what: String,
    },
}

fn unversioned() -> u64 {
    UNVERSIONED
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

impl Request {
    pub(crate) fn reap() -> Self {
        Self::Reap { version: VERSION }
    }

    /// The version of the protocol that the request is of.
    pub(crate) fn version(&self) -> u64 {
        match self {
            Self::Start(request) => request.version,
            Self::Reap { version } => *version,
            Self::Attach(request) => request.version,
            Self::Report(request) => request.version,
        }
    }

    pub(crate) fn decode(body: &[u8]) -> io::Result<Self> {
        /// The version where a request of any version has it.
        type RequestHeader = BTreeMap<String, VersionHeader>;
        // Before the fields: those of a newer version may be others.
        if let Ok(header) = serde_json::from_slice::<RequestHeader>(body)
            && let Some(header) = header.values().next()
        {
            check_version(header.version.unwrap_or(UNVERSIONED), VERSION)?;
        }
        Ok(serde_json::from_slice(body)?)
    }
}

impl Reply {
    /// Sends the reply in the format of the request's version.
    pub(crate) fn send(self, stream: &UnixStream, request_version: u64) -> io::Result<()> {
        if request_version <= UNVERSIONED {
            return frame::send(stream, &self, &[]);
        }
        // A daemon of an earlier build refuses a newer version.
        let versioned = Versioned {
            version: request_version.min(VERSION),
            message: self,
        };
        frame::send(stream, &versioned, &[])
    }

    pub(crate) fn decode(body: &[u8]) -> io::Result<Self> {
        // A reply of version 1 may be a string, which has no header.
        let header = serde_json::from_slice::<VersionHeader>(body);
        match header.ok().and_then(|header| header.version) {
            None => Ok(serde_json::from_slice(body)?),
            Some(version) => {
                check_version(version, VERSION)?;
                let versioned: Versioned<Self> = serde_json::from_slice(body)?;
                Ok(versioned.message)
            }
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    /// The body of a frame as a shim or daemon of before versions sent it.
    macro_rules! frame {
        ($name:literal) => {
            &include_bytes!(concat!(
                "../../tests/it/fixtures/unversioned/frames/",
                $name
            ))[4..]
        };
    }

    fn sent(reply: Reply, request_version: u64) -> Vec<u8> {
        let (one, other) = UnixStream::pair().unwrap();
        reply.send(&one, request_version).unwrap();
        let (body, _) = frame::receive_bytes(&other).unwrap().unwrap();
        body
    }

    #[test]
    fn a_request_without_a_version_is_version_1() {
        let Request::Start(request) = Request::decode(frame!("shim-start")).unwrap() else {
            panic!("another request");
        };
        assert_eq!(request.version, UNVERSIONED);
        assert_eq!(request.name.as_str(), "server");
        assert_eq!(request.program.uid, 1000);
        assert!(request.program.filter.is_some());
    }

    #[test]
    fn replies_without_a_version_are_read() {
        let Reply::Started(record) = Reply::decode(frame!("shim-started")).unwrap() else {
            panic!("another reply");
        };
        assert_eq!((record.name.as_str(), record.runs), ("server", 1));
        assert!(matches!(
            Reply::decode(frame!("shim-running")).unwrap(),
            Reply::Running
        ));
        assert!(matches!(
            Reply::decode(frame!("shim-not-started")).unwrap(),
            Reply::NotStarted {
                step: Step::Execute,
                errno: 2
            }
        ));
    }

    #[test]
    fn a_reply_to_version_1_is_sent_without_a_version() {
        assert_eq!(sent(Reply::Running, UNVERSIONED), frame!("shim-running"));
        let not_started = Reply::NotStarted {
            step: Step::Execute,
            errno: 2,
        };
        assert_eq!(sent(not_started, UNVERSIONED), frame!("shim-not-started"));
        let body = sent(Reply::Running, VERSION_2);
        assert_eq!(body, br#"{"version":2,"message":"Running"}"#);
        assert!(matches!(Reply::decode(&body).unwrap(), Reply::Running));
    }

    /// Version 1 accepts one key at the top, and ignores unknown fields below it.
    #[test]
    fn a_request_has_its_version_where_version_1_ignores_it() {
        let request = Request::decode(frame!("shim-start")).unwrap();
        let Request::Start(mut request) = request else {
            panic!("another request");
        };
        request.version = VERSION;
        let sent = serde_json::to_value(Request::Start(request)).unwrap();
        let keys: Vec<&String> = sent.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["Start"]);
        let mut start = sent["Start"].clone();
        assert_eq!(start["version"], VERSION);
        start.as_object_mut().unwrap().remove("version");
        let old: serde_json::Value = serde_json::from_slice(frame!("shim-start")).unwrap();
        assert_eq!(start, old["Start"]);
    }

    #[test]
    fn a_newer_version_is_refused_before_its_fields_are_read() {
        let error = Request::decode(br#"{"Start":{"version":4,"renamed":1}}"#).unwrap_err();
        assert!(error.to_string().contains("protocol version 4"), "{error}");
        let error = Request::decode(br#"{"Attach":{"version":4,"renamed":1}}"#).unwrap_err();
        assert!(error.to_string().contains("protocol version 4"), "{error}");
        let error = Reply::decode(br#"{"version":4,"message":{"Unknown":1}}"#).unwrap_err();
        assert!(error.to_string().contains("protocol version 4"), "{error}");
    }
}
