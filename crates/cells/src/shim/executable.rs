//! One executable as its shim knows it: its record, its output, its end.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use mainstay_journal::{LogWriter, Stream, Timestamp};
use rustix::process::{Pid, WaitStatus};

use super::execute::Executed;
use super::output::{Found, Pipe};
use crate::name::CellName;
use crate::record::{self, End, ExecutableRecord, HowEnded};

/// What is left in a pipe when its executable has ended is taken at once; what others go on
/// writing into it is not waited for.
const MOST_LEFT: usize = 1 << 20;

/// An executable that runs, or whose output is still held open by somebody.
pub(super) struct Live {
    pub(super) record: ExecutableRecord,
    /// In this cell; `None` once it has ended.
    pub(super) pid: Option<Pid>,
    pub(super) pipes: Vec<Pipe>,
    pub(super) log: LogWriter,
    memory: Option<MemoryKills>,
    /// The record on disk is not the newest.
    pub(super) unsaved: bool,
    /// Why output was lost, until the log says so.
    lost: Option<String>,
}

/// The kernel's count of kills for lack of memory in the cell.
pub(super) struct MemoryKills {
    file: File,
    before: u64,
}

/// What an executable has when it begins to run.
pub(super) struct Born {
    pub(super) executed: Executed,
    pub(super) pipes: [Pipe; 2],
}

impl Live {
    /// One that is about to begin its first run.
    pub(super) fn new(record: ExecutableRecord, log: LogWriter) -> Self {
        Self {
            record,
            pid: None,
            pipes: Vec::new(),
            log,
            memory: None,
            unsaved: false,
            lost: None,
        }
    }

    pub(super) fn begin(&mut self, born: Born, memory: Option<MemoryKills>) {
        self.pid = Some(born.executed.pid);
        self.pipes.extend(born.pipes);
        self.memory = memory;
    }

    pub(super) fn pump(&mut self, pipe: usize, buffer: &mut [u8]) -> Found {
        let Some(at) = self.pipes.get_mut(pipe) else {
            return Found::End;
        };
        let found = at.pump(buffer, &mut self.log).unwrap_or_else(|error| {
            // Better than to stop whoever writes: a full disk is not its fault.
            self.lost = Some(said(&error));
            Found::Some(0)
        });
        if found == Found::End {
            // Closed when tidied up: its place must stay until then.
            let finished = at.finish(&mut self.log);
            self.lost = finished
                .err()
                .map(|error| said(&error))
                .or(self.lost.take());
            at.close();
        }
        found
    }

    /// Writes out what has gathered, and forgets the pipes that have ended.
    pub(super) fn tidy(&mut self) {
        self.pipes.retain(|pipe| !pipe.is_closed());
        if let Err(error) = self.log.flush() {
            self.lost = Some(said(&error));
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

    pub(super) fn ended(&mut self, status: WaitStatus, buffer: &mut [u8]) {
        self.pid = None;
        for pipe in 0..self.pipes.len() {
            let mut left = MOST_LEFT;
            while let Found::Some(got) = self.pump(pipe, buffer) {
                if got == 0 || got >= left {
                    break;
                }
                left -= got;
            }
        }
        for pipe in &mut self.pipes {
            let _ = pipe.finish(&mut self.log);
        }
        self.tidy();
        let out_of_memory = self.memory.take().is_some_and(|memory| memory.has_killed());
        let how = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => HowEnded::Exited(code),
            (None, Some(signal)) => HowEnded::Killed {
                signal,
                out_of_memory: out_of_memory && signal == libc::SIGKILL,
            },
            (None, None) => HowEnded::Lost,
        };
        let now = Timestamp::now();
        let at = self.log.last_time().map_or(now, |last| last.max(now));
        self.record.run.end = Some(End {
            at: at.as_nanos(),
            how,
        });
        self.unsaved = true;
    }

    pub(super) fn save(&mut self, records: &Path, cell: &CellName) {
        let file = format!("{}.json", self.record.name.key(cell));
        self.unsaved = record::write(&records.join(file), &self.record).is_err();
    }

    /// Nothing more will come of it.
    pub(super) fn is_over(&self) -> bool {
        self.pid.is_none() && self.pipes.is_empty() && !self.unsaved
    }
}

impl MemoryKills {
    pub(super) fn begin(file: OwnedFd) -> Option<Self> {
        let file = File::from(file);
        let before = Self::read(&file)?;
        Some(Self { file, before })
    }

    fn has_killed(&self) -> bool {
        Self::read(&self.file).is_some_and(|now| now > self.before)
    }

    fn read(file: &File) -> Option<u64> {
        let mut text = [0; 1024];
        let got = file.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..got]).ok()?;
        let count = text
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill "))?;
        count.trim().parse().ok()
    }
}

/// An error with what is behind it.
pub(super) fn said(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
