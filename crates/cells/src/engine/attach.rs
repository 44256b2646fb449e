//! Attach: connects a caller to the standard input and the terminal of an executable.
//!
//! The shim holds both, so that they outlive the daemon; here bytes only pass through.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::cell::Cell;
use super::error::CellError;
use super::{Inner, blocking};
use crate::frame;
use crate::name::{CellName, ExecutableName};
use crate::shim::attachment::{DaemonMessage, MAX_DATA_BYTES, ShimMessage};
use crate::shim::protocol::{self, AttachRequest, Attached, Reply, Request};

/// A shim answers at once; one that takes longer than this is stuck.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// How to attach.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttachOptions {
    /// The run; the latest by default.
    pub pid: Option<i32>,
    /// The offset of the first byte of terminal output to receive.
    pub output_offset: u64,
    /// Whether to take over the standard input.
    pub stdin: bool,
}

/// A connection to an executable.
#[derive(Debug)]
pub enum Attachment {
    Running {
        attached: Attached,
        reader: AttachmentReader,
        writer: AttachmentWriter,
    },
    /// The run has ended, and nothing is left to receive.
    Ended,
}

#[derive(Debug)]
pub struct AttachmentReader {
    stream: OwnedReadHalf,
    received: Vec<u8>,
    run: AttachedRun,
    ended: bool,
}

/// The run that an attachment belongs to.
#[derive(Debug)]
struct AttachedRun {
    cell: Arc<Cell>,
    executable: ExecutableName,
    started: i64,
}

impl AttachedRun {
    /// Waits until the end of the run is known here too: the next call must see it.
    async fn until_ended(&self) {
        let ended = self.cell.until_ended(&self.executable, self.started);
        // Longer only if the shim cannot write its record.
        let _ = timeout(REPLY_TIMEOUT, ended).await;
    }
}

#[derive(Debug)]
pub struct AttachmentWriter {
    stream: OwnedWriteHalf,
}

pub(super) async fn attach(
    inner: Arc<Inner>,
    name: CellName,
    executable: ExecutableName,
    options: AttachOptions,
) -> Result<Attachment, CellError> {
    let cell = inner.find(&name)?;
    let missing = || CellError::NoSuchExecutable {
        cell: name.clone(),
        executable: executable.clone(),
    };
    let record = cell.state().executables.get(&executable).cloned();
    let record = record.ok_or_else(missing)?;
    if !record.spec.is_attachable() {
        return Err(CellError::NotAttachable {
            cell: name,
            executable,
        });
    }
    // An earlier run has ended.
    let is_latest = options.pid.is_none_or(|pid| pid == record.run.pid);
    let is_known = is_latest || record.all_runs().any(|run| Some(run.pid) == options.pid);
    if !is_known {
        return Err(missing());
    }
    if !is_latest || cell.state().shim.is_none() {
        return Ok(Attachment::Ended);
    }
    let request = AttachRequest {
        version: protocol::VERSION,
        name: executable.clone(),
        started: record.run.started,
        output_offset: options.output_offset,
        stdin: options.stdin,
    };
    let run = AttachedRun {
        cell,
        executable: executable.clone(),
        started: record.run.started,
    };
    let at = name.clone();
    let answered = blocking(&at, move || {
        let unresponsive = |source| CellError::ShimUnresponsive {
            cell: name.clone(),
            source,
        };
        let (stream, reply) = connect(&inner, &name, request).map_err(unresponsive)?;
        let attached = match reply {
            Reply::Attached(attached) => attached,
            Reply::Ended => return Ok(None),
            Reply::NotAttachable => {
                return Err(CellError::NotAttachable {
                    cell: name,
                    executable,
                });
            }
            Reply::TooManyAttachments => {
                return Err(CellError::TooManyAttachments {
                    cell: name,
                    executable,
                });
            }
            Reply::Failed { what } => return Err(CellError::EarlierShim { cell: name, what }),
            _ => return Err(unresponsive(io::ErrorKind::InvalidData.into())),
        };
        Ok(Some((stream, attached)))
    });
    let Some((stream, attached)) = answered.await? else {
        run.until_ended().await;
        return Ok(Attachment::Ended);
    };
    let stream = UnixStream::from_std(stream);
    let stream = stream.map_err(|source| CellError::ShimUnresponsive { cell: at, source })?;
    let (reader, writer) = stream.into_split();
    Ok(Attachment::Running {
        attached,
        reader: AttachmentReader {
            stream: reader,
            received: Vec::new(),
            run,
            ended: false,
        },
        writer: AttachmentWriter { stream: writer },
    })
}

fn connect(
    inner: &Inner,
    cell: &CellName,
    request: AttachRequest,
) -> io::Result<(std::os::unix::net::UnixStream, Reply)> {
    let stream = inner.paths.connect(cell)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
    frame::send(&stream, &Request::Attach(request), &[])?;
    let (body, _) = frame::receive_bytes(&stream)?.ok_or(io::ErrorKind::ConnectionReset)?;
    let reply = Reply::decode(&body)?;
    stream.set_nonblocking(true)?;
    Ok((stream, reply))
}

impl AttachmentReader {
    /// Receives the next message; `None` if the shim has closed the connection. Cancel-safe.
    pub async fn next(&mut self) -> io::Result<Option<ShimMessage>> {
        loop {
            if self.ended {
                self.run.until_ended().await;
                return Ok(Some(ShimMessage::Ended));
            }
            match ShimMessage::take(&mut self.received)? {
                Some(ShimMessage::Ended) => {
                    self.ended = true;
                    continue;
                }
                Some(message) => return Ok(Some(message)),
                None => {}
            }
            self.received.reserve(MAX_DATA_BYTES);
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Ok(None);
            }
        }
    }
}

impl AttachmentWriter {
    /// Sends bytes of standard input, at most [`MAX_DATA_BYTES`], of which the first has this offset.
    /// Waits until the shim takes them.
    pub async fn stdin(&mut self, offset: u64, data: Vec<u8>) -> io::Result<()> {
        self.send(DaemonMessage::Stdin { offset, data }).await
    }

    /// Ends the standard input at this offset.
    pub async fn close_stdin(&mut self, offset: u64) -> io::Result<()> {
        self.send(DaemonMessage::CloseStdin { offset }).await
    }

    pub async fn resize(&mut self, rows: u16, columns: u16) -> io::Result<()> {
        self.send(DaemonMessage::Resize { rows, columns }).await
    }

    async fn send(&mut self, message: DaemonMessage) -> io::Result<()> {
        self.stream.write_all(&message.encode()).await
    }
}
