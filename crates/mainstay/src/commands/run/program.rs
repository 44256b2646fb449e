//! The life of a program in a cell: allocate, start, forward, stop, free.

use std::time::Duration;

use mainstay_api::observe::{GetSubProcessStreamRequest, LogChannelType, LogItem};
use mainstay_api::runtime::{
    AllocateCellRequest, Cell, Executable, ExecutableState, ExecutableStatus, FreeCellRequest,
    StartCellRequest,
};
use tokio::io::{AsyncWrite, stderr, stdout};
use tonic::{Code, Response, Status, Streaming};

use super::attach::Attachment;
use super::link::Link;
use super::relay::{Position, relay};
use super::signals::Signals;
use crate::commands::cell::{self, stop};
use crate::connection::Connection;
use crate::failure::{Exit, Failure, Outcome, warn};
use mainstay_client::request_to_node;

const SIGTERM: i32 = 15;
/// Added to the signal number in the exit code, as shells do.
const SIGNAL_EXIT_BASE: i32 = 128;

/// Where the standard streams of the program come from and go to.
pub(super) enum Streams {
    /// All through a terminal of its own.
    Terminal(Attachment),
    /// Output by its log, input by an attachment, if there is any.
    Pipes(Option<Attachment>),
}

/// State of the program after the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Stopped,
    /// Another client has freed its cell.
    CellGone,
    Unknown,
}

pub(super) struct Program<'a> {
    pub(super) link: &'a Link<'a>,
    pub(super) node: Option<String>,
    pub(super) cell: &'a str,
    pub(super) name: &'a str,
}

impl Program<'_> {
    pub(super) fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// Creates the cell. Returns `true` if it is new and must be freed.
    pub(super) async fn allocate(&self, wanted: Cell, may_exist: bool) -> Outcome<bool> {
        let has_options = wanted
            != Cell {
                name: self.cell.to_owned(),
                ..Cell::default()
            };
        let request = AllocateCellRequest { cell: Some(wanted) };
        let client = self.link.current().await;
        let mut cells = client.cells();
        let answer = cells.allocate(request_to_node(self.node(), request));
        match answer_of(&client, answer).await? {
            Ok(_) => Ok(true),
            Err(status) if status.code() == Code::AlreadyExists && may_exist => {
                if has_options {
                    return Err(Failure::usage(format!(
                        "cell {:?} exists and cannot be changed; omit the cell options to run in it",
                        self.cell
                    )));
                }
                Ok(false)
            }
            Err(status) => Err(status.into()),
        }
    }

    /// Starts the program. Returns its PID.
    pub(super) async fn start(&self, executable: Executable) -> Outcome<i32> {
        let request = StartCellRequest {
            executable: Some(executable),
        };
        let client = self.link.current().await;
        let mut cells = client.cells();
        let answer = cells.start(request_to_node(self.node(), request));
        let failed = |exit, status: &Status| Err(Failure::new(exit, status.message()));
        match answer_of(&client, answer).await? {
            Ok(started) => Ok(started.into_inner().pid),
            Err(status) => match status.code() {
                // The cell exists and the role permits a start, so these concern the program.
                Code::NotFound => failed(Exit::CommandNotFound, &status),
                Code::PermissionDenied => failed(Exit::NotExecutable, &status),
                // A format that the kernel does not know, among others.
                Code::FailedPrecondition if status.message().starts_with("cannot execute ") => {
                    failed(Exit::NotExecutable, &status)
                }
                Code::AlreadyExists => Err(Failure::new(
                    Exit::Failed,
                    format!("{}; choose another name with --name NAME", status.message()),
                )),
                _ => Err(status.into()),
            },
        }
    }

    /// Waits for the program to exit, and stops it if waiting fails and its cell is not freed.
    pub(super) async fn watch(
        &self,
        pid: i32,
        signals: &mut Signals,
        streams: Streams,
        cell_is_freed: bool,
    ) -> Outcome<ExecutableStatus> {
        let status = self.wait(pid, signals, streams).await;
        match status {
            Err(failure) if !cell_is_freed => {
                let end = self.terminate(signals).await;
                Err(self.explain(failure, end))
            }
            status => status,
        }
    }

    /// Waits until the program has exited and its output is written.
    async fn wait(
        &self,
        pid: i32,
        signals: &mut Signals,
        streams: Streams,
    ) -> Outcome<ExecutableStatus> {
        let written = async {
            match streams {
                Streams::Terminal(mut attachment) => attachment.forward(self, pid).await,
                Streams::Pipes(None) => self.relay_output(pid).await,
                Streams::Pipes(Some(mut attachment)) => {
                    let input = async {
                        if let Err(failure) = attachment.forward(self, pid).await
                            && self.is_running(pid).await
                        {
                            warn(&format!("stdin is not forwarded: {}", failure.message));
                        }
                        // The output says when the program has exited.
                        std::future::pending().await
                    };
                    tokio::select! {
                        biased;
                        written = self.relay_output(pid) => written,
                        never = input => never,
                    }
                }
            }
        };
        tokio::select! {
            written = written => written?,
            failure = self.forward_signals(signals) => return Err(failure),
        };
        let found = self.link.retry(async |client: &Connection| {
            cell::executable(client, self.node(), self.cell, self.name).await
        });
        let found = found.await?;
        match found {
            Some(status) if status.pid == pid && status.state() != ExecutableState::Running => {
                Ok(status)
            }
            _ => Err(Failure::new(
                Exit::Failed,
                format!("exit status of {:?} is unknown to the node", self.name),
            )),
        }
    }

    async fn is_running(&self, pid: i32) -> bool {
        let client = self.link.current().await;
        let found = cell::executable(&client, self.node(), self.cell, self.name).await;
        let status = found.ok().flatten();
        status.is_some_and(|status| status.pid == pid && status.state() == ExecutableState::Running)
    }

    async fn relay_output(&self, pid: i32) -> Outcome {
        tokio::try_join!(
            self.relay_channel(pid, LogChannelType::ChannelStdout, ("stdout", stdout())),
            self.relay_channel(pid, LogChannelType::ChannelStderr, ("stderr", stderr())),
        )?;
        Ok(())
    }

    /// Writes all output of a channel; continues where it was when the daemon restarts.
    async fn relay_channel(
        &self,
        pid: i32,
        channel: LogChannelType,
        (name, mut out): (&str, impl AsyncWrite + Unpin),
    ) -> Outcome {
        let mut position = Position::default();
        self.link
            .retry(async |client: &Connection| {
                let since = position.time_nanos;
                let lines = self.output(client, pid, channel, since).await?;
                relay(lines, (name, &mut out), &mut position).await
            })
            .await
    }

    async fn output(
        &self,
        client: &Connection,
        pid: i32,
        channel: LogChannelType,
        since_nanos: i64,
    ) -> Outcome<Streaming<LogItem>> {
        let request = GetSubProcessStreamRequest {
            channel_type: channel.into(),
            process_id: pid.into(),
            since_nanos,
        };
        let mut observe = client.observe();
        let stream = observe.get_sub_process_stream(request_to_node(self.node(), request));
        let stream = client.within(stream).await?.into_inner();
        self.link.answered();
        Ok(stream)
    }

    /// Forwards the first signal, kills the program on the second, and gives up on the third.
    async fn forward_signals(&self, signals: &mut Signals) -> Failure {
        let first = signals.next().await;
        tokio::select! {
            stopped = self.stop(first, None) => if let Err(failure) = stopped {
                return failure;
            },
            second = signals.next() => tokio::select! {
                stopped = self.stop(second, Some(Duration::ZERO)) => if let Err(failure) = stopped {
                    return failure;
                },
                third = signals.next() => return interrupted(third),
            },
        }
        // The program has exited, but its output is blocked.
        interrupted(signals.next().await)
    }

    async fn stop(&self, signal: i32, grace: Option<Duration>) -> Outcome {
        let mut request = request_to_node(
            self.node(),
            stop::request(self.cell, self.name, signal, grace),
        );
        let timeout = stop::stop_timeout(grace);
        request.set_timeout(timeout);
        let client = self.link.current().await;
        let mut cells = client.cells();
        let stopped = client.within_timeout(timeout, cells.stop(request)).await;
        Ok(stopped.map(drop)?)
    }

    /// Frees the cell and kills whatever still runs in it.
    pub(super) async fn free(&self, signals: &mut Signals) -> End {
        let mut request = request_to_node(
            self.node(),
            FreeCellRequest {
                cell_name: self.cell.to_owned(),
            },
        );
        let timeout = stop::stop_timeout(None);
        request.set_timeout(timeout);
        let client = self.link.current().await;
        let mut cells = client.cells();
        let freed = tokio::select! {
            freed = client.within_timeout(timeout, cells.free(request)) => {
                freed.map(drop).map_err(Failure::from)
            }
            signal = signals.twice() => Err(interrupted(signal)),
        };
        match freed {
            Ok(()) => End::Stopped,
            // Another client has freed it.
            Err(failure) if failure.exit == Exit::NotFound => End::CellGone,
            Err(failure) => {
                warn(&format!(
                    "cannot free cell {0:?}: {1}; remove it with mainstay cell free {0}",
                    self.cell, failure.message
                ));
                End::Unknown
            }
        }
    }

    /// Stops the program in an existing cell, which is not freed.
    async fn terminate(&self, signals: &mut Signals) -> End {
        let stopped = tokio::select! {
            stopped = self.stop(SIGTERM, None) => stopped,
            signal = signals.twice() => Err(interrupted(signal)),
        };
        match stopped {
            Ok(()) => End::Stopped,
            // It was started before, so it can only be gone with its cell.
            Err(failure) if failure.exit == Exit::NotFound => End::CellGone,
            Err(failure) => {
                self.link.notices.warn(&format!(
                    "cannot stop {0:?}: {1}; stop it with mainstay cell stop {2} {0}",
                    self.name, failure.message, self.cell
                ));
                End::Unknown
            }
        }
    }

    /// Returns a failure of the run in terms of the state of the program.
    pub(super) fn explain(&self, failure: Failure, end: End) -> Failure {
        match (failure.exit, end) {
            (Exit::Failed | Exit::NotFound, End::CellGone) => Failure::new(
                Exit::Failed,
                format!("cell {:?} was freed while the program ran", self.cell),
            ),
            (Exit::Unreachable | Exit::Timeout, End::Unknown) => Failure::new(
                failure.exit,
                format!(
                    "{0}; {1:?} may still run in cell {2:?}: see mainstay cell list and mainstay \
                     cell logs {2} {1}",
                    failure.message, self.name, self.cell
                ),
            ),
            _ => failure,
        }
    }

    /// Returns the exit status of the program as the outcome of the command.
    pub(super) fn outcome(&self, status: &ExecutableStatus) -> Outcome {
        if status.oom_killed {
            self.link.notices.begin_line();
            warn(&format!(
                "{:?} was OOM-killed: cell {:?} reached its memory limit",
                self.name, self.cell
            ));
        }
        if status.state() == ExecutableState::Lost {
            return Err(Failure::new(
                Exit::Failed,
                format!(
                    "{:?} was killed with its cell; its exit code is unknown",
                    self.name
                ),
            ));
        }
        let code = match status.signal {
            0 => status.exit_code,
            signal => SIGNAL_EXIT_BASE.saturating_add(signal),
        };
        match u8::try_from(code) {
            Ok(0) => Ok(()),
            Ok(code) => Err(Failure::printed(Exit::Program(code))),
            Err(_) => Err(Failure::new(
                Exit::Failed,
                format!(
                    "{:?} exited with code {code}, which is out of range",
                    self.name
                ),
            )),
        }
    }
}

/// Waits for an answer; a status of the node is not a failure yet.
async fn answer_of<T>(
    client: &Connection,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Outcome<Result<Response<T>, Status>> {
    Ok(client.within(async { Ok(call.await) }).await?)
}

fn interrupted(signal: i32) -> Failure {
    let exit =
        u8::try_from(SIGNAL_EXIT_BASE.saturating_add(signal)).map_or(Exit::Failed, Exit::Program);
    Failure::new(
        exit,
        format!("interrupted by {}", stop::signal_name(signal)),
    )
}
