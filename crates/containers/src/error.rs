//! Errors of the container drivers.

use std::path::PathBuf;
use std::time::Duration;

/// The reason a call about containers failed.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    #[error("container {id:?} not found")]
    NotFound { id: String },

    #[error("container {id:?} has no instance before this one, or it was removed")]
    NoPrevious { id: String },

    #[error("id is empty; set it to a container id as listed by Containers")]
    NoId,

    #[error("container id {id:?} is not valid; use at most 512 bytes without control characters")]
    InvalidId { id: String },

    #[error(
        "namespace {namespace:?} is not valid; use at most 76 letters and digits, joined by single . _ or -"
    )]
    InvalidNamespace { namespace: String },

    #[error(
        "CRI inspector is supported only for K8s namespace; set namespace \"k8s.io\" instead of {namespace:?}"
    )]
    NotKubernetes { namespace: String },

    #[error("container {id:?} is in several namespaces ({}); name one of them", .namespaces.join(", "))]
    Ambiguous { id: String, namespaces: Vec<String> },

    #[error(
        "{runtime} cannot be reached at {}: {reason}; check that it runs, or set {option} in the configuration",
        .socket.display()
    )]
    Unreachable {
        runtime: &'static str,
        socket: PathBuf,
        option: String,
        /// The root cause of the failed connection.
        reason: String,
        /// The socket does not exist.
        absent: bool,
    },

    #[error(
        "the server at {} does not speak {runtime}; enable it there, or set {option} in the configuration",
        .socket.display()
    )]
    NotSpoken {
        runtime: &'static str,
        socket: PathBuf,
        option: String,
    },

    #[error("{runtime} at {} did not answer within {}", .socket.display(), seconds(.waited))]
    Silent {
        runtime: &'static str,
        socket: PathBuf,
        waited: Duration,
    },

    #[error("{runtime} refused to {what}: {}", .status.message())]
    Refused {
        runtime: &'static str,
        what: &'static str,
        status: Box<tonic::Status>,
    },

    #[error("container {id:?} is being restarted already")]
    Restarting { id: String },

    #[error(
        "container {id:?} is not running; a container of Kubernetes starts only once, and its kubelet creates the next one"
    )]
    NotRunning { id: String },

    #[error("container {id:?} belongs to Docker, which would see it as exited; use docker restart")]
    OfDocker { id: String },

    #[error("container {id:?} has a terminal whose client is gone; it was not stopped")]
    Detached { id: String },

    #[error("container {id:?} survived SIGKILL")]
    Unstoppable { id: String },

    #[error("container {id:?} was stopped but could not be started again")]
    NotStarted {
        id: String,
        source: Box<ContainerError>,
    },

    #[error("container {id:?} has no log: {why}")]
    NoLog { id: String, why: NoLog },

    #[error("restarting container {id:?} was interrupted because the node is stopping")]
    Interrupted { id: String },
}

/// The reason a container has no log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLog {
    #[error("it is the sandbox of a pod; name one of its containers, as namespace/pod:container")]
    Sandbox,
    #[error("it was created without a log file")]
    NotAsked,
    #[error("it is not running, and containerd keeps no output of stopped containers")]
    NoTask,
    #[error(
        "its output is thrown away; start it with a log file, as ctr run --log-uri file:///PATH does"
    )]
    Discarded,
    #[error(
        "its output goes to the program that started it; start it with a log file, as ctr run --log-uri file:///PATH does"
    )]
    Piped,
    #[error("its output goes to a logging program of its own")]
    LoggingProgram,
}

fn seconds(time: &Duration) -> String {
    format!("{} s", time.as_secs_f64())
}
