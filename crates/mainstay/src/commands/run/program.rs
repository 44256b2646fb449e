//! The life of a program in a cell: allocate, start, forward, stop, free.

use std::time::Duration;

use mainstay_api::observe::{GetSubProcessStreamRequest, LogChannelType, LogItem};
use mainstay_api::runtime::{
    AllocateCellRequest, Cell, Executable, ExecutableState, ExecutableStatus, FreeCellRequest,
    StartCellRequest,
};
use tokio::io::{stderr, stdout};
use tonic::{Code, Response, Status, Streaming};

use super::relay::relay;
use super::signals::Signals;
use crate::commands::cell::{self, stop};
use crate::connection::Connection;
use crate::failure::{Exit, Failure, Outcome, warn};
use mainstay_client::request_to_node;

const SIGTERM: i32 = 15;
/// Added to the signal number in the exit code, as shells do.
const SIGNAL_EXIT_BASE: i32 = 128;

pub(super) struct Program<'a> {
    pub(super) client: &'a Connection,
    pub(super) node: Option<&'a str>,
    pub(super) cell: &'a str,
    pub(super) name: &'a str,
}

impl Program<'_> {
    /// Creates the cell. Returns `true` if it is new and must be freed.
    pub(super) async fn allocate(&self, wanted: Cell, may_exist: bool) -> Outcome<bool> {
        let has_options = wanted
            != Cell {
                name: self.cell.to_owned(),
                ..Cell::default()
            };
        let request = AllocateCellRequest { cell: Some(wanted) };
        let mut cells = self.client.cells();
        let answer = cells.allocate(request_to_node(self.node, request));
        match self.answer(answer).await? {
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
        let mut cells = self.client.cells();
        let answer = cells.start(request_to_node(self.node, request));
        let failed = |exit, status: &Status| Err(Failure::new(exit, status.message()));
        match self.answer(answer).await? {
            Ok(started) => Ok(started.into_inner().pid),
            Err(status) => match status.code() {
                // The cell exists and the role permits a start, so these concern the program.
                Code::NotFound => failed(Exit::CommandNotFound, &status),
                Code::PermissionDenied => failed(Exit::NotExecutable, &status),
                Code::AlreadyExists => Err(Failure::new(
                    Exit::Failed,
                    format!("{}; choose another name with --name NAME", status.message()),
                )),
                _ => Err(status.into()),
            },
        }
    }

    /// Waits for the program to exit, and stops it if waiting fails.
    pub(super) async fn watch(
        &self,
        pid: i32,
        signals: &mut Signals,
        cell_is_freed: bool,
    ) -> Outcome<ExecutableStatus> {
        let status = self.wait(pid, signals).await;
        if status.is_err() && !cell_is_freed {
            self.terminate(signals).await;
        }
        status
    }

    /// Waits until the program has exited and its output is written.
    async fn wait(&self, pid: i32, signals: &mut Signals) -> Outcome<ExecutableStatus> {
        let (out, err) = tokio::try_join!(
            self.output(pid, LogChannelType::ChannelStdout),
            self.output(pid, LogChannelType::ChannelStderr),
        )?;
        let written = async { tokio::try_join!(relay(out, stdout()), relay(err, stderr())) };
        tokio::select! {
            written = written => written?,
            failure = self.forward_signals(signals) => return Err(failure),
        };
        let found = cell::executable(self.client, self.node, self.cell, self.name).await?;
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

    async fn output(&self, pid: i32, channel: LogChannelType) -> Outcome<Streaming<LogItem>> {
        let request = GetSubProcessStreamRequest {
            channel_type: channel.into(),
            process_id: pid.into(),
        };
        let mut observe = self.client.observe();
        let stream = observe.get_sub_process_stream(request_to_node(self.node, request));
        Ok(self.client.within(stream).await?.into_inner())
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
            self.node,
            stop::request(self.cell, self.name, signal, grace),
        );
        let timeout = stop::stop_timeout(grace);
        request.set_timeout(timeout);
        let mut cells = self.client.cells();
        let stopped = self
            .client
            .within_timeout(timeout, cells.stop(request))
            .await;
        Ok(stopped.map(drop)?)
    }

    /// Frees the cell and kills whatever still runs in it.
    pub(super) async fn free(&self, signals: &mut Signals) {
        let mut request = request_to_node(
            self.node,
            FreeCellRequest {
                cell_name: self.cell.to_owned(),
            },
        );
        let timeout = stop::stop_timeout(None);
        request.set_timeout(timeout);
        let mut cells = self.client.cells();
        let freed = tokio::select! {
            freed = self.client.within_timeout(timeout, cells.free(request)) => {
                freed.map(drop).map_err(Failure::from)
            }
            signal = signals.twice() => Err(interrupted(signal)),
        };
        match freed {
            Ok(()) => {}
            // Another client has freed it.
            Err(failure) if failure.exit == Exit::NotFound => {}
            Err(failure) => warn(&format!(
                "cannot free cell {0:?}: {1}; remove it with mainstay cell free {0}",
                self.cell, failure.message
            )),
        }
    }

    /// Stops the program in an existing cell, which is not freed.
    async fn terminate(&self, signals: &mut Signals) {
        let stopped = tokio::select! {
            stopped = self.stop(SIGTERM, None) => stopped,
            signal = signals.twice() => Err(interrupted(signal)),
        };
        match stopped {
            Ok(()) => {}
            // It was never started.
            Err(failure) if failure.exit == Exit::NotFound => {}
            Err(failure) => warn(&format!(
                "cannot stop {0:?}: {1}; stop it with mainstay cell stop {2} {0}",
                self.name, failure.message, self.cell
            )),
        }
    }

    /// Returns the exit status of the program as the outcome of the command.
    pub(super) fn outcome(&self, status: &ExecutableStatus) -> Outcome {
        if status.oom_killed {
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

    /// Waits for an answer; a status of the node is not a failure yet.
    async fn answer<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Outcome<Result<Response<T>, Status>> {
        Ok(self.client.within(async { Ok(call.await) }).await?)
    }
}

fn interrupted(signal: i32) -> Failure {
    let exit =
        u8::try_from(SIGNAL_EXIT_BASE.saturating_add(signal)).map_or(Exit::Failed, Exit::Program);
    Failure::new(
        exit,
        format!("interrupted by {}", stop::signal_name(signal)),
    )
}
