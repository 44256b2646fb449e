//! The connection to a runtime's socket.
//!
//! It is opened on first use, kept, and reopened when the runtime was restarted. No call waits
//! longer than its timeout.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

use crate::error::ContainerError;

/// The largest answer accepted from a runtime, enough for a thousand containers.
pub(crate) const MAX_MESSAGE_BYTES: usize = 32 << 20;

#[derive(Debug)]
pub(crate) struct Connection {
    runtime: &'static str,
    socket: PathBuf,
    /// The configuration key of the socket.
    option: String,
    timeout: Duration,
    channel: OnceLock<Channel>,
}

impl Connection {
    pub(crate) fn new(
        runtime: &'static str,
        socket: &Path,
        option: &str,
        timeout: Duration,
    ) -> Self {
        Self {
            runtime,
            socket: socket.to_owned(),
            option: option.to_owned(),
            timeout,
            channel: OnceLock::new(),
        }
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn channel(&self) -> Channel {
        let connect = || {
            let socket = self.socket.clone();
            let connector = tower::service_fn(move |_| {
                let socket = socket.clone();
                async move { UnixStream::connect(socket).await.map(TokioIo::new) }
            });
            Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
        };
        self.channel.get_or_init(connect).clone()
    }

    /// Waits for an answer within the timeout. `what` completes "refused to …".
    pub(crate) async fn call<T>(
        &self,
        what: &'static str,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, ContainerError> {
        self.call_within(self.timeout, what, call).await
    }

    /// Waits for an answer within another timeout, for calls that take long by nature.
    pub(crate) async fn call_within<T>(
        &self,
        timeout: Duration,
        what: &'static str,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, ContainerError> {
        match tokio::time::timeout(timeout, call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.failed(what, status)),
            Err(_) => Err(self.timed_out(timeout)),
        }
    }

    pub(crate) fn timed_out(&self, waited: Duration) -> ContainerError {
        ContainerError::Silent {
            runtime: self.runtime,
            socket: self.socket.clone(),
            waited,
        }
    }

    fn failed(&self, what: &'static str, status: Status) -> ContainerError {
        // A status sent by the runtime has no source; one made for a failed connection has the
        // root cause at the end of its chain.
        if status.source().is_none() && status.code() == Code::Unimplemented {
            return ContainerError::NotSpoken {
                runtime: self.runtime,
                socket: self.socket.clone(),
                option: self.option.clone(),
            };
        }
        let Some(mut cause) = status.source() else {
            return ContainerError::Refused {
                runtime: self.runtime,
                what,
                status: Box::new(status),
            };
        };
        let mut absent = false;
        loop {
            absent |= cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound);
            match cause.source() {
                Some(deeper) => cause = deeper,
                None => break,
            }
        }
        ContainerError::Unreachable {
            runtime: self.runtime,
            socket: self.socket.clone(),
            option: self.option.clone(),
            reason: cause.to_string(),
            absent,
        }
    }
}
