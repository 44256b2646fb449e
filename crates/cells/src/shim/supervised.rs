//! One executable as its shim knows it: its record, its output, its exit.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use mainstay_error_chain::chain;
use mainstay_journal::{Stream, Timestamp};
use rustix::process::{Pid, WaitStatus};

use super::attachable::Attachable;
use super::oom_kills::OomKills;
use super::output_log::OutputLog;
use super::output_pipe::{OutputPipe, PipeRead};
use crate::name::CellName;
use crate::record::{self, ExecutableRecord, ExitStatus, RunEnd};

/// How much is read from a pipe after its executable has exited; other writers may keep it open
/// and write for ever.
const MAX_DRAIN_BYTES: usize = 1 << 20;

/// An executable that runs, or whose output is still held open by another process.
pub(super) struct Supervised {
    pub(super) record: ExecutableRecord,
    /// On the host; `None` once it has been reaped.
    pub(super) pid: Option<Pid>,
    pub(super) pipes: Vec<OutputPipe>,
    pub(super) log: OutputLog,
    /// Its standard input or terminal, if clients can attach to one.
    pub(super) attachable: Option<Attachable>,
    oom_kills: Option<OomKills>,
    /// The record on disk is stale.
    pub(super) unsaved: bool,
    /// Why output was lost, until the log says so.
    lost: Option<String>,
}

/// A started program and the read ends of its output.
pub(super) struct Spawned {
    /// On the host.
    pub(super) pid: Pid,
    pub(super) pipes: Vec<OutputPipe>,
    pub(super) attachable: Option<Attachable>,
    pub(super) oom_kills: Option<OomKills>,
}

impl Supervised {
    /// An executable before its first run.
    pub(super) fn new(record: ExecutableRecord, log: OutputLog) -> Self {
        Self {
            record,
            pid: None,
            pipes: Vec::new(),
            log,
            attachable: None,
            oom_kills: None,
            unsaved: false,
            lost: None,
        }
    }

    /// Takes over a new run.
    pub(super) fn begin(&mut self, spawned: Spawned) {
        self.pid = Some(spawned.pid);
        self.pipes.iter_mut().for_each(OutputPipe::outlive_run);
        self.pipes.extend(spawned.pipes);
        // Attachments of an earlier run end with this.
        self.attachable = spawned.attachable;
        self.oom_kills = spawned.oom_kills;
    }

    /// Reads a pipe once, into lines of the log that wait to be flushed.
    pub(super) fn read_pipe(&mut self, index: usize, buffer: &mut [u8]) -> PipeRead {
        let Some(pipe) = self.pipes.get_mut(index) else {
            return PipeRead::Eof;
        };
        let (read, pushed) = pipe.read(buffer, &mut self.log);
        if let Err(error) = pushed {
            // Better than to block the writer: a full disk is not its fault.
            self.lost = Some(chain(&error));
        }
        if let (PipeRead::Bytes(got), true, Some(attachable)) =
            (&read, pipe.is_attachable(), &mut self.attachable)
        {
            attachable.keep_output(&buffer[..*got]);
        }
        if read == PipeRead::Eof {
            // Removed by `flush`: the indexes of the other pipes must stay valid until then.
            let finished = pipe.finish(&mut self.log);
            self.lost = finished
                .err()
                .map(|error| chain(&error))
                .or(self.lost.take());
            pipe.close();
        }
        read
    }

    /// Writes buffered lines to the log, and drops pipes at EOF.
    pub(super) fn flush(&mut self) {
        self.pipes.retain(|pipe| !pipe.is_closed());
        if let Err(error) = self.log.flush() {
            self.lost = Some(chain(&error));
        } else if let Some(why) = self.lost.take() {
            let line = format!("(mainstay: output was lost: {why})");
            let now = Timestamp::now();
            if self
                .log
                .append(now, Stream::Stderr, line.as_bytes())
                .is_err()
            {
                self.lost = Some(why);
            }
        }
    }

    /// Records the exit of a reaped process, after the output it left in its pipes.
    pub(super) fn reaped(&mut self, status: WaitStatus, buffer: &mut [u8]) {
        self.pid = None;
        for pipe in 0..self.pipes.len() {
            let mut left = MAX_DRAIN_BYTES;
            while let PipeRead::Bytes(got) = self.read_pipe(pipe, buffer) {
                if got == 0 || got >= left {
                    break;
                }
                left -= got;
            }
        }
        for pipe in &mut self.pipes {
            let _ = pipe.finish(&mut self.log);
        }
        self.flush();
        let oom_killed = self.oom_kills.take().is_some_and(|kills| kills.happened());
        let status = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => ExitStatus::Exited(code),
            (None, Some(signal)) => ExitStatus::Killed {
                signal,
                oom_killed: oom_killed && signal == libc::SIGKILL,
            },
            (None, None) => ExitStatus::Lost,
        };
        let now = Timestamp::now();
        let at = self.log.last_time().map_or(now, |last| last.max(now));
        self.record.run.end = Some(RunEnd {
            at: at.as_nanos(),
            status,
        });
        self.unsaved = true;
    }

    /// Writes the record; a failure is retried by the event loop.
    pub(super) fn save(&mut self, records: &Path, cell: &CellName) -> io::Result<()> {
        let path = records.join(format!("{}.json", self.record.name.key(cell)));
        let saved = record::write_executable(&path, &self.record);
        self.unsaved = saved.is_err();
        if self.unsaved {
            // Needs no room on a full disk. The daemon watches the directory, and asks this shim.
            let private = Permissions::from_mode(record::PRIVATE);
            let _ = fs::set_permissions(path, private);
        }
        saved
    }

    /// Returns whether the executable has exited, its pipes are at EOF and its record is saved.
    pub(super) fn is_finished(&self) -> bool {
        self.has_ended() && !self.attachable.as_ref().is_some_and(Attachable::is_wanted)
    }

    /// Returns whether nothing of the executable is left but what clients may attach to.
    pub(super) fn has_ended(&self) -> bool {
        self.pid.is_none() && self.pipes.is_empty() && !self.unsaved
    }

    /// Serves the connections that are attached, without blocking.
    pub(super) fn serve_attachments(&mut self, buffer: &mut [u8]) {
        if let Some(attachable) = &mut self.attachable {
            attachable.serve(self.pid.is_none(), buffer);
        }
    }
}
