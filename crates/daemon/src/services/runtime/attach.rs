//! `Attach`: the standard input and the terminal of an executable.
//!
//! Both directions pass through without a buffer here: a client that does not read is not sent to,
//! and one whose executable does not read is not read from.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, future, stream};
use mainstay_api::runtime::attach_cell_request::Message as Request;
use mainstay_api::runtime::attach_cell_response::Message as Response;
use mainstay_api::runtime::{
    AttachCellRequest, AttachCellResponse, AttachData, AttachOpen, AttachStart,
};
use mainstay_cells::{
    AttachOptions, Attachment, AttachmentReader, AttachmentWriter, Cells, MAX_DATA_BYTES,
    ShimMessage,
};
use tokio::task::JoinHandle;
use tonic::{Status, Streaming};

use super::cell_spec::{cell_name, executable_name, terminal_size};
use crate::requester::Requester;
use crate::rpc::{Answers, Bounds, Slot, Slots, status};

/// A client has its first message ready when it calls.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// The task that passes input ends right after it has closed its half of the connection.
const REASON_TIMEOUT: Duration = Duration::from_millis(100);

/// Attachments of all executables.
static ATTACHMENTS: Slots = Slots::new(Bounds {
    shared: 256,
    reserved: 64,
    per_caller: 64,
});

pub(super) async fn attach(
    cells: &Cells,
    mut requests: Streaming<AttachCellRequest>,
) -> Result<Answers<AttachCellResponse>, Status> {
    let slot = ATTACHMENTS.take(Requester::current()).map_err(|error| {
        Status::resource_exhausted(format!("cannot attach again: {error}; end one of them"))
    })?;
    let opened = tokio::time::timeout(OPEN_TIMEOUT, requests.message()).await;
    let opened = opened.map_err(|_| Status::deadline_exceeded("no first message has come"))??;
    let Some(Request::Open(open)) = opened.and_then(|first| first.message) else {
        return Err(Status::invalid_argument(
            "the first message must be `open`, which names the executable",
        ));
    };
    let (cell, executable) = (
        cell_name(&open.cell_name)?,
        executable_name(&open.executable_name)?,
    );
    let attachment = cells.attach(cell, executable, options(&open)).await;
    match attachment.map_err(|error| status::of_cells(&error))? {
        Attachment::Ended => {
            let start = AttachStart {
                stdin_offset: 0,
                output_offset: open.output_offset,
            };
            Ok(Box::pin(stream::once(future::ready(Ok(response(
                Response::Attached(start),
            ))))))
        }
        Attachment::Running {
            attached,
            reader,
            writer,
        } => {
            let start = AttachStart {
                stdin_offset: attached.stdin_accepted,
                output_offset: attached.output_offset,
            };
            let input = tokio::spawn(pass_input(requests, writer));
            let attached = Attached {
                reader,
                input: Some(Input(input)),
                _slot: slot,
            };
            let first = stream::once(future::ready(Ok(response(Response::Attached(start)))));
            let rest = stream::unfold(Some(attached), |attached| async { attached?.next().await });
            Ok(Box::pin(first.chain(rest)))
        }
    }
}

fn options(open: &AttachOpen) -> AttachOptions {
    AttachOptions {
        pid: (open.pid != 0).then_some(open.pid),
        output_offset: open.output_offset,
        stdin: open.stdin,
    }
}

/// An attachment whose messages are passed on. Dropping it detaches.
struct Attached {
    reader: AttachmentReader,
    /// `None` once the client sends nothing more.
    input: Option<Input>,
    _slot: Slot,
}

/// The task that passes messages of the client on.
struct Input(JoinHandle<Result<(), Status>>);

impl Drop for Input {
    fn drop(&mut self) {
        self.0.abort();
    }
}

type Next = Option<(Result<AttachCellResponse, Status>, Option<Attached>)>;

impl Attached {
    /// Returns the next message, and the attachment unless it was the last.
    async fn next(mut self) -> Next {
        loop {
            let message = tokio::select! {
                // First: a refused message closes the connection to the shim, which is then the
                // consequence and not the reason.
                biased;
                done = until_done(&mut self.input) => match done {
                    // A client may send nothing more and go on reading.
                    Ok(()) => {
                        self.input = None;
                        continue;
                    }
                    Err(status) => return Some((Err(status), None)),
                },
                message = self.reader.next() => message,
            };
            let message = match message {
                Ok(Some(ShimMessage::Output { offset, data })) => {
                    let data = Bytes::from(data);
                    Response::Output(AttachData { offset, data })
                }
                Ok(Some(ShimMessage::StdinAccepted { total })) => Response::StdinAccepted(total),
                Ok(Some(ShimMessage::Ended)) => return None,
                Ok(Some(ShimMessage::Replaced)) => {
                    let status = Status::aborted("another call has taken over the standard input");
                    return Some((Err(status), None));
                }
                Ok(None) => {
                    // The task that was refused may be about to say why.
                    let refused = tokio::time::timeout(REASON_TIMEOUT, until_done(&mut self.input));
                    let status = match refused.await {
                        Ok(Err(status)) => status,
                        _ => closed(),
                    };
                    return Some((Err(status), None));
                }
                Err(error) => return Some((Err(broken(&error)), None)),
            };
            return Some((Ok(response(message)), Some(self)));
        }
    }
}

/// Resolves when the client sends nothing more, or something wrong; never after that.
async fn until_done(input: &mut Option<Input>) -> Result<(), Status> {
    match input {
        Some(Input(input)) => match input.await {
            Ok(done) => done,
            Err(_) => Err(Status::internal("passing input failed")),
        },
        None => future::pending().await,
    }
}

/// The shim closes the connection only when the run is replaced by the next one, when it was sent an
/// invalid offset, or when it dies.
fn closed() -> Status {
    Status::aborted(
        "the attachment was closed: its run has ended, its cell was freed, or an offset of the \
         standard input left a gap",
    )
}

fn broken(error: &io::Error) -> Status {
    Status::aborted(format!(
        "the connection to the shim of the cell failed: {error}"
    ))
}

async fn pass_input(
    mut requests: Streaming<AttachCellRequest>,
    mut writer: AttachmentWriter,
) -> Result<(), Status> {
    while let Some(request) = requests.message().await? {
        let passed = match request.message {
            Some(Request::Stdin(AttachData { offset, data })) => {
                if data.len() > MAX_DATA_BYTES {
                    return Err(Status::invalid_argument(format!(
                        "a message has {} bytes of standard input; the maximum is {MAX_DATA_BYTES}",
                        data.len()
                    )));
                }
                writer.stdin(offset, data.into()).await
            }
            Some(Request::CloseStdin(offset)) => writer.close_stdin(offset).await,
            Some(Request::Resize(size)) => {
                let size = terminal_size(size)?;
                writer.resize(size.rows, size.columns).await
            }
            Some(Request::Open(_)) => {
                return Err(Status::invalid_argument("only the first message is `open`"));
            }
            // Of a later version.
            None => Ok(()),
        };
        if passed.is_err() {
            // The shim has closed the connection; what it said last is being read.
            break;
        }
    }
    // Half of the connection stays open: the shim takes EOF for a detachment.
    future::pending::<()>().await;
    drop(writer);
    Ok(())
}

fn response(message: Response) -> AttachCellResponse {
    AttachCellResponse {
        message: Some(message),
    }
}
