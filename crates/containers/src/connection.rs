//! The way to a runtime's socket.
//!
//! Made when it is first needed, kept, and made again by itself when the runtime was restarted.
//! Nothing waits longer than the patience given.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

use crate::error::ContainerError;

/// A runtime's answer may describe a thousand containers.
pub(crate) const MOST_MESSAGE_BYTES: usize = 32 << 20;

#[derive(Debug)]
pub(crate) struct Connection {
    runtime: &'static str,
    socket: PathBuf,
    /// The option of the configuration that says where the socket is.
    option: String,
    patience: Duration,
    channel: OnceLock<Channel>,
}

impl Connection {
    pub(crate) fn new(
        runtime: &'static str,
        socket: &Path,
        option: &str,
        patience: Duration,
    ) -> Self {
        Self {
            runtime,
            socket: socket.to_owned(),
            option: option.to_owned(),
            patience,
            channel: OnceLock::new(),
        }
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
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

    /// Waits for an answer, as long as the patience lasts. `what` was asked completes
    /// "refused to …".
    pub(crate) async fn ask<T>(
        &self,
        what: &'static str,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, ContainerError> {
        self.ask_for(self.patience, what, call).await
    }

    /// The same for what takes its time by its nature.
    pub(crate) async fn ask_for<T>(
        &self,
        patience: Duration,
        what: &'static str,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, ContainerError> {
        match tokio::time::timeout(patience, call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.failed(what, status)),
            Err(_) => Err(self.silent(patience)),
        }
    }

    pub(crate) fn silent(&self, waited: Duration) -> ContainerError {
        ContainerError::Silent {
            runtime: self.runtime,
            socket: self.socket.clone(),
            waited,
        }
    }

    fn failed(&self, what: &'static str, status: Status) -> ContainerError {
        // A status that the runtime sent has no source; one that stands for a lost or missing
        // connection has what went wrong at the end of its chain.
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
            why: cause.to_string(),
            absent,
        }
    }
}
