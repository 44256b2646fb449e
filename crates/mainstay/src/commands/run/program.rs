//! A program in a cell of the node, from its start to its end.

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

const TERM: i32 = 15;
/// As a shell tells an end by a signal.
const BY_SIGNAL: i32 = 128;

pub(super) struct Program<'a> {
    pub(super) client: &'a Connection,
    pub(super) node: Option<&'a str>,
    pub(super) cell: &'a str,
    pub(super) name: &'a str,
}

impl Program<'_> {
    /// `true` if the cell is new, and so ours to free.
    pub(super) async fn allocate(&self, wanted: Cell, may_exist: bool) -> Outcome<bool> {
        let asks_for_more = wanted
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
                if asks_for_more {
                    return Err(Failure::usage(format!(
                        "cell {:?} is there already and stays as it was allocated; leave out the \
                         options of the cell to run in it",
                        self.cell
                    )));
                }
                Ok(false)
            }
            Err(status) => Err(status.into()),
        }
    }

    /// Gives its process id.
    pub(super) async fn start(&self, executable: Executable) -> Outcome<i32> {
        let request = StartCellRequest {
            executable: Some(executable),
        };
        let mut cells = self.client.cells();
        let answer = cells.start(request_to_node(self.node, request));
        let told = |exit, status: &Status| Err(Failure::new(exit, status.message()));
        match self.answer(answer).await? {
            Ok(started) => Ok(started.into_inner().pid),
            Err(status) => match status.code() {
                // The cell is there and we may start things in it: it is about the program.
                Code::NotFound => told(Exit::CommandNotFound, &status),
                Code::PermissionDenied => told(Exit::NotExecutable, &status),
                Code::AlreadyExists => Err(Failure::new(
                    Exit::Failed,
                    format!("{}; --name NAME calls this one otherwise", status.message()),
                )),
                _ => Err(status.into()),
            },
        }
    }

    /// Stays with it to its end, and ends it when that cannot be.
    pub(super) async fn watch(
        &self,
        pid: i32,
        signals: &mut Signals,
        is_freed: bool,
    ) -> Outcome<ExecutableStatus> {
        let ended = self.until_ended(pid, signals).await;
        if ended.is_err() && !is_freed {
            self.end(signals).await;
        }
        ended
    }

    /// Until it has ended and all it wrote has been written here.
    async fn until_ended(&self, pid: i32, signals: &mut Signals) -> Outcome<ExecutableStatus> {
        let (out, err) = tokio::try_join!(
            self.output(pid, LogChannelType::ChannelStdout),
            self.output(pid, LogChannelType::ChannelStderr),
        )?;
        let written = async { tokio::try_join!(relay(out, stdout()), relay(err, stderr())) };
        tokio::select! {
            written = written => written?,
            failure = self.hand_on(signals) => return Err(failure),
        };
        let found = cell::executable(self.client, self.node, self.cell, self.name).await?;
        match found {
            Some(ended) if ended.pid == pid && ended.state() != ExecutableState::Running => {
                Ok(ended)
            }
            _ => Err(Failure::new(
                Exit::Failed,
                format!("how {:?} ended is not known to the node", self.name),
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

    /// The first signal asks the program to end, the second ends it. Whoever sends a third does
    /// not want to wait any longer.
    async fn hand_on(&self, signals: &mut Signals) -> Failure {
        let first = signals.next().await;
        tokio::select! {
            stopped = self.stop(first, None) => if let Err(failure) = stopped {
                return failure;
            },
            second = signals.next() => tokio::select! {
                stopped = self.stop(second, Some(Duration::ZERO)) => if let Err(failure) = stopped {
                    return failure;
                },
                third = signals.next() => return given_up(third),
            },
        }
        // It has ended, but what it wrote does not get through.
        given_up(signals.next().await)
    }

    async fn stop(&self, signal: i32, grace: Option<Duration>) -> Outcome {
        let mut request = request_to_node(
            self.node,
            stop::request(self.cell, self.name, signal, grace),
        );
        let bound = stop::patience(grace);
        request.set_timeout(bound);
        let mut cells = self.client.cells();
        let stopped = self.client.within_timeout(bound, cells.stop(request)).await;
        Ok(stopped.map(drop)?)
    }

    /// Removes the cell with all that may still be in it.
    pub(super) async fn free(&self, signals: &mut Signals) {
        let mut request = request_to_node(
            self.node,
            FreeCellRequest {
                cell_name: self.cell.to_owned(),
            },
        );
        let bound = stop::patience(None);
        request.set_timeout(bound);
        let mut cells = self.client.cells();
        let freed = tokio::select! {
            freed = self.client.within_timeout(bound, cells.free(request)) => {
                freed.map(drop).map_err(Failure::from)
            }
            signal = signals.twice() => Err(given_up(signal)),
        };
        match freed {
            // Somebody else has freed it.
            Ok(()) => {}
            Err(failure) if failure.exit == Exit::NotFound => {}
            Err(failure) => warn(&format!(
                "cell {0:?} may be left behind: {1}; mainstay cell free {0} removes it",
                self.cell, failure.message
            )),
        }
    }

    /// Ends what may still run in a cell that is not ours.
    async fn end(&self, signals: &mut Signals) {
        let ended = tokio::select! {
            ended = self.stop(TERM, None) => ended,
            signal = signals.twice() => Err(given_up(signal)),
        };
        match ended {
            Ok(()) => {}
            // It was never started.
            Err(failure) if failure.exit == Exit::NotFound => {}
            Err(failure) => warn(&format!(
                "{0:?} may still run: {1}; mainstay cell stop {2} {0} ends it",
                self.name, failure.message, self.cell
            )),
        }
    }

    /// What the program ended with, as our own end.
    pub(super) fn outcome(&self, ended: &ExecutableStatus) -> Outcome {
        if ended.oom_killed {
            warn(&format!(
                "{:?} was killed: cell {:?} had used up its memory",
                self.name, self.cell
            ));
        }
        if ended.state() == ExecutableState::Lost {
            return Err(Failure::new(
                Exit::Failed,
                format!(
                    "{:?} ended along with its cell; its exit code is not known",
                    self.name
                ),
            ));
        }
        let code = match ended.signal {
            0 => ended.exit_code,
            signal => BY_SIGNAL.saturating_add(signal),
        };
        match u8::try_from(code) {
            Ok(0) => Ok(()),
            Ok(code) => Err(Failure::printed(Exit::Program(code))),
            Err(_) => Err(Failure::new(
                Exit::Failed,
                format!("{:?} ended with {code}", self.name),
            )),
        }
    }

    /// An answer in time, whatever it is.
    async fn answer<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Outcome<Result<Response<T>, Status>> {
        Ok(self.client.within(async { Ok(call.await) }).await?)
    }
}

fn given_up(signal: i32) -> Failure {
    let exit = u8::try_from(BY_SIGNAL.saturating_add(signal)).map_or(Exit::Failed, Exit::Program);
    Failure::new(exit, format!("given up on {}", stop::signal_name(signal)))
}
