//! The output of one process, from its first line to its last.

use std::pin::Pin;

use mainstay_cells::{Cells, FoundRun, Run};
use mainstay_journal::{LogChunk, LogError, LogQuery, LogStream, Record, Stream, Timestamp};

use super::WorkloadError;

type Exited = Pin<Box<dyn Future<Output = Run> + Send>>;

/// Reads what one run of an executable wrote to one of its output streams.
pub struct ProcessOutput {
    lines: LogStream,
    channel: Stream,
    executable: String,
    /// Missing once the process has exited.
    exited: Option<Exited>,
    /// Later lines are from other processes that it started.
    until: Option<Timestamp>,
}

impl ProcessOutput {
    pub(super) async fn open(
        cells: Cells,
        found: FoundRun,
        channel: Stream,
        since: Option<Timestamp>,
    ) -> Result<Self, WorkloadError> {
        let running = found.run.is_running();
        let started = found.run.started();
        let query = LogQuery {
            since: Some(since.map_or(started, |since| since.max(started))),
            until: exit_time(&found.run),
            follow: running,
            ..LogQuery::default()
        };
        let lines = cells.read_log(&found.cell, &found.executable, query);
        let lines = lines.await?;
        let executable = found.executable.to_string();
        let exited: Exited = Box::pin(async move { cells.until_ended(&found).await });
        Ok(Self {
            lines,
            channel,
            executable,
            exited: running.then_some(exited),
            until: None,
        })
    }

    pub fn executable(&self) -> &str {
        &self.executable
    }

    pub fn channel(&self) -> Stream {
        self.channel
    }

    /// Returns the next lines, or `None` after the last line of an exited process. They may
    /// contain lines of others; see [`Self::is_own`].
    pub async fn next(&mut self) -> Result<Option<LogChunk>, LogError> {
        while let Some(exited) = &mut self.exited {
            let run = tokio::select! {
                biased;
                chunk = self.lines.next() => return chunk,
                run = exited => run,
            };
            // The shim has written all output by now.
            self.until = exit_time(&run);
            self.lines.finish();
            self.exited = None;
        }
        self.lines.next().await
    }

    /// Returns whether the process wrote this line to the chosen stream.
    pub fn is_own(&self, record: &Record<'_>) -> bool {
        let in_time = match (record.time, self.until) {
            (Some(time), Some(until)) => time <= until,
            _ => true,
        };
        record.stream == self.channel && in_time
    }
}

fn exit_time(run: &Run) -> Option<Timestamp> {
    run.end.map(|end| Timestamp::from_nanos(end.at))
}

impl std::fmt::Debug for ProcessOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessOutput")
            .field("executable", &self.executable)
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}
