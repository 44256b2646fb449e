//! Forwards standard input and the terminal to and from the program.

use futures_util::stream;
use mainstay_api::runtime::attach_cell_request::Message as Request;
use mainstay_api::runtime::attach_cell_response::Message as Response;
use mainstay_api::runtime::{AttachCellRequest, AttachOpen};
use mainstay_client::request_to_node;
use tokio::io::{AsyncWriteExt, stdout};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::notices::Notices;
use super::program::Program;
use super::stdin::Stdin;
use super::terminal;
use crate::connection::Connection;
use crate::failure::{Failure, Outcome};

/// The standard input and the terminal of the command, for the program to use.
pub(super) struct Attachment {
    pub(super) stdin: Option<Stdin>,
    /// Changes of the terminal's size, if the program runs on one.
    resized: Option<Signal>,
    /// The offset of the next byte of terminal output.
    output: u64,
}

impl Attachment {
    pub(super) fn new(stdin: Option<Stdin>, tty: bool) -> Outcome<Self> {
        let resized = tty.then(|| signal(SignalKind::window_change()));
        Ok(Self {
            stdin,
            resized: resized.transpose()?,
            output: 0,
        })
    }

    /// Forwards until the program has exited and all of its terminal output is written.
    pub(super) async fn forward(&mut self, program: &Program<'_>, pid: i32) -> Outcome {
        program
            .link
            .retry(async |connection: &Connection| {
                self.forward_once(connection, program, pid).await
            })
            .await
    }

    async fn forward_once(
        &mut self,
        connection: &Connection,
        program: &Program<'_>,
        pid: i32,
    ) -> Outcome {
        // Bounded by the window of stdin.
        let (send, receive) = unbounded_channel();
        let open = AttachOpen {
            cell_name: program.cell.to_owned(),
            executable_name: program.name.to_owned(),
            pid,
            output_offset: self.output,
            stdin: self.stdin.is_some(),
        };
        let mut send = Sender {
            messages: send,
            attached: false,
        };
        send.send(Request::Open(open));
        let messages = stream::unfold(receive, |mut receive| async move {
            Some((receive.recv().await?, receive))
        });
        let mut cells = connection.cells();
        let call = cells.attach(request_to_node(program.node(), messages));
        let mut answers = connection.within(call).await?.into_inner();
        loop {
            let stdin_is_read = self.stdin.as_ref().is_some_and(Stdin::wants_more);
            tokio::select! {
                answer = answers.message() => match answer?.map(|answer| answer.message) {
                    Some(Some(message)) => {
                        program.link.answered();
                        self.handle(message, &mut send, &program.link.notices).await?;
                    }
                    // Of a later version.
                    Some(None) => {}
                    None => return Ok(()),
                },
                data = next(&mut self.stdin), if stdin_is_read && send.attached => match data {
                    Some(data) => send.send(Request::Stdin(data)),
                    None => self.close_stdin(&mut send),
                },
                () = resized(&mut self.resized) => send.send(Request::Resize(terminal::size())),
            }
        }
    }

    async fn handle(&mut self, message: Response, send: &mut Sender, notices: &Notices) -> Outcome {
        match message {
            Response::Attached(start) => {
                self.warn_of_gap(start.output_offset, notices);
                if self.resized.is_some() {
                    // It may have changed since the start.
                    send.send(Request::Resize(terminal::size()));
                }
                if let Some(stdin) = &mut self.stdin {
                    stdin.accept(start.stdin_offset);
                    for data in stdin.unaccepted() {
                        send.send(Request::Stdin(data));
                    }
                }
                self.close_stdin(send);
                send.attached = true;
            }
            Response::Output(output) => {
                self.warn_of_gap(output.offset, notices);
                let mut out = stdout();
                out.write_all(&output.data).await.map_err(Failure::stdout)?;
                out.flush().await.map_err(Failure::stdout)?;
                notices.written(&output.data);
                self.output += output.data.len() as u64;
            }
            Response::StdinAccepted(offset) => {
                if let Some(stdin) = &mut self.stdin {
                    stdin.accept(offset);
                }
            }
        }
        Ok(())
    }

    fn close_stdin(&self, send: &mut Sender) {
        if let Some(end) = self.stdin.as_ref().and_then(Stdin::ended_at) {
            send.send(Request::CloseStdin(end));
        }
    }

    fn warn_of_gap(&mut self, offset: u64, notices: &Notices) {
        if offset > self.output {
            let lost = offset - self.output;
            notices.warn(&format!(
                "{lost} bytes of output were lost; the log has them"
            ));
            self.output = offset;
        }
    }
}

/// Messages to the node.
struct Sender {
    messages: UnboundedSender<AttachCellRequest>,
    /// The node has said which standard input it has.
    attached: bool,
}

impl Sender {
    fn send(&mut self, message: Request) {
        let message = AttachCellRequest {
            message: Some(message),
        };
        // Fails once the call has ended, which its answer says.
        let _ = self.messages.send(message);
    }
}

async fn next(stdin: &mut Option<Stdin>) -> Option<mainstay_api::runtime::AttachData> {
    match stdin {
        Some(stdin) => stdin.next().await,
        None => std::future::pending().await,
    }
}

async fn resized(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}
