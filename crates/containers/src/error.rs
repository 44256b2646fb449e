//! What can go wrong with containers.

use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    #[error("container {id:?} not found")]
    NotFound { id: String },

    #[error("container {id:?} has no instance before this one, or it is removed already")]
    NoPrevious { id: String },

    #[error("no container is named; set id as Containers shows it")]
    NoId,

    #[error("container id {id:?} is not valid; it has at most 512 bytes and no control characters")]
    InvalidId { id: String },

    #[error(
        "namespace {namespace:?} is not valid; it is made of letters and digits, joined by single . _ or -, at most 76 in all"
    )]
    InvalidNamespace { namespace: String },

    #[error(
        "CRI inspector is supported only for K8s namespace; set namespace \"k8s.io\" instead of {namespace:?}"
    )]
    NotKubernetes { namespace: String },

    #[error("container {id:?} is in several namespaces ({}); name one of them", .namespaces.join(", "))]
    Ambiguous { id: String, namespaces: Vec<String> },

    #[error(
        "{runtime} cannot be reached at {}: {why}; is it running? Where its socket is, {option} in the configuration says",
        .socket.display()
    )]
    Unreachable {
        runtime: &'static str,
        socket: PathBuf,
        option: String,
        why: String,
        /// There is nothing at all at the socket's path.
        absent: bool,
    },

    #[error(
        "what listens at {} does not speak {runtime}; switch it on there, or set {option} in the configuration",
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
        "container {id:?} does not run; a container of Kubernetes starts only once, and its kubelet makes the next one"
    )]
    NotRunning { id: String },

    #[error("container {id:?} belongs to Docker, which would take it for dead; use docker restart")]
    OfDocker { id: String },

    #[error(
        "container {id:?} has a terminal, and what it was attached to is gone; nothing was stopped"
    )]
    Detached { id: String },

    #[error("container {id:?} did not end when it was killed")]
    Unstoppable { id: String },

    #[error("container {id:?} was stopped but could not be started again: {why}")]
    NotStarted { id: String, why: String },

    #[error("container {id:?} has no log: {why}")]
    NoLog { id: String, why: NoLog },

    #[error("restarting container {id:?} was interrupted because the node is stopping")]
    Interrupted { id: String },
}

/// Why nobody keeps what a container writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLog {
    #[error("it is the sandbox of a pod; name one of its containers, as namespace/pod:container")]
    Sandbox,
    #[error("it was made without a log file")]
    NotAsked,
    #[error("nothing runs in it, and containerd keeps no output of what ran before")]
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
