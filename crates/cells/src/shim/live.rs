//! The loop of a shim: one thread that waits for callers, output and ends.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use mainstay_journal::{LogLimits, LogWriter, Stream, Timestamp};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitOptions, WaitStatus};

use super::execute::{self, Place};
use super::output::{self, Found, Pipe};
use super::protocol::{Reply, Request, StartRequest};
use super::{Birth, Host, control};
use crate::frame;
use crate::name::ExecutableName;
use crate::record::{self, End, ExecutableRecord, HowEnded, Run};
use crate::spec::Namespace;

/// Touched only as far as there is output.
const BUFFER_BYTES: usize = 256 * 1024;
/// What is left in a pipe when its executable has ended is taken at once; what others go on
/// writing into it is not waited for.
const MOST_LEFT: usize = 1 << 20;
/// How soon a record that could not be written, such as on a full disk, is tried again.
const AGAIN: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};
/// Passed on to what runs in the cell.
const FORWARDED: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

pub(super) struct Shim<'a> {
    pub(super) birth: &'a Birth,
    pub(super) control: UnixListener,
    pub(super) records: PathBuf,
    pub(super) logs: PathBuf,
    pub(super) host: &'a Host,
}

/// An executable that runs, or whose output is still held open by somebody.
struct Live {
    record: ExecutableRecord,
    /// In this cell; `None` once it has ended.
    pid: Option<Pid>,
    pipes: Vec<Pipe>,
    log: LogWriter,
    memory: Option<MemoryKills>,
    /// The record on disk is not the newest.
    unsaved: bool,
    /// Why output was lost, until the log says so.
    lost: Option<String>,
}

/// The kernel's count of kills for lack of memory in the cell.
struct MemoryKills {
    file: File,
    before: u64,
}

impl Shim<'_> {
    pub(super) fn run(self) -> io::Result<()> {
        let mut mask = SigSet::from_iter(FORWARDED);
        mask.add(Signal::SIGCHLD);
        mask.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&mask, flags)?;
        self.control.set_nonblocking(true)?;
        let mut executables: BTreeMap<ExecutableName, Live> = BTreeMap::new();
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let ready = self.wait(&signals, &executables)?;
            for (name, pipe) in ready.pipes {
                if let Some(live) = executables.get_mut(&name) {
                    live.pump(pipe, &mut buffer);
                }
            }
            for live in executables.values_mut() {
                live.tidy();
            }
            // After the output that was there: what an executable wrote last comes before its end.
            if ready.signals {
                forward(&signals, &executables);
                reap(&mut executables, &mut buffer);
            }
            for live in executables.values_mut().filter(|live| live.unsaved) {
                live.save(&self.records, &self.birth.cell);
            }
            executables.retain(|_, live| !live.is_over());
            if ready.control {
                self.serve(&mut executables, &mut buffer);
            }
        }
    }

    fn wait(
        &self,
        signals: &SignalFd,
        executables: &BTreeMap<ExecutableName, Live>,
    ) -> io::Result<Ready> {
        let mut fds = vec![
            PollFd::new(&self.control, PollFlags::IN),
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
        ];
        let mut pipes = Vec::new();
        for (name, live) in executables {
            for (index, pipe) in live.pipes.iter().enumerate() {
                fds.push(PollFd::new(pipe.file(), PollFlags::IN));
                pipes.push((name, index));
            }
        }
        let unsaved = executables.values().any(|live| live.unsaved);
        match poll(&mut fds, unsaved.then_some(&AGAIN)) {
            Err(rustix::io::Errno::INTR) => return Ok(Ready::default()),
            polled => polled?,
        };
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        Ok(Ready {
            control: is_ready(&fds[0]),
            signals: is_ready(&fds[1]),
            pipes: pipes
                .into_iter()
                .zip(&fds[2..])
                .filter(|(_, fd)| is_ready(fd))
                .map(|((name, index), _)| (name.clone(), index))
                .collect(),
        })
    }

    /// One caller at a time: there is one daemon, and it waits for its answer.
    fn serve(&self, executables: &mut BTreeMap<ExecutableName, Live>, buffer: &mut [u8]) {
        let outside_has_no_pid = !self.birth.share.contains(&Namespace::Pid);
        // A caller that goes away or talks nonsense harms nobody.
        let Ok(Some(stream)) = control::accept(&self.control, outside_has_no_pid) else {
            return;
        };
        let Ok(Some((Request::Start(request), fds))) = frame::receive(&stream) else {
            return;
        };
        // What it is to be called may have ended a moment ago.
        reap(executables, buffer);
        let reply = self.start(*request, fds, executables);
        let _ = frame::send(&stream, &reply, &[]);
    }

    fn start(
        &self,
        request: StartRequest,
        fds: Vec<OwnedFd>,
        executables: &mut BTreeMap<ExecutableName, Live>,
    ) -> Reply {
        let before = executables.remove(&request.name);
        if let Some(live) = before.as_ref().filter(|live| live.pid.is_some()) {
            debug_assert_eq!(live.record.name, request.name);
            executables.extend(before.map(|live| (request.name, live)));
            return Reply::Running;
        }
        let name = request.name.clone();
        match self.try_start(request, fds, before) {
            Ok(mut live) => {
                live.save(&self.records, &self.birth.cell);
                let record = live.record.clone();
                executables.insert(name, live);
                Reply::Started(Box::new(record))
            }
            Err((left, reply)) => {
                executables.extend(left.map(|live| (name, live)));
                reply
            }
        }
    }

    /// Or what there was before, and why not.
    fn try_start(
        &self,
        request: StartRequest,
        fds: Vec<OwnedFd>,
        before: Option<Live>,
    ) -> Result<Live, (Option<Live>, Reply)> {
        let mut fds = fds.into_iter();
        let unified = if request.unified { fds.next() } else { None };
        let procs: Vec<OwnedFd> = fds.by_ref().take(request.procs).collect();
        let memory = if request.counts_memory_kills {
            fds.next().and_then(MemoryKills::begin)
        } else {
            None
        };
        let key = request.name.key(&self.birth.cell);
        let limits = LogLimits {
            file_bytes: request.log_file_bytes,
            total_bytes: request.log_total_bytes,
        };
        let failed = |what: String| Reply::Failed { what };
        let (mut log, mut pipes, earlier) = match before {
            Some(live) => (live.log, live.pipes, Some(live.record)),
            None => {
                let earlier = record::read(&self.records.join(format!("{key}.json"))).ok();
                match LogWriter::open(&self.logs, &key, limits) {
                    Ok(log) => (log, Vec::new(), earlier),
                    Err(error) => return Err((None, failed(said(&error)))),
                }
            }
        };
        log.set_limits(limits);
        // Times tell one run from another, so no two share one.
        let now = Timestamp::now().as_nanos();
        let started = log
            .last_time()
            .map_or(now, |last| now.max(last.as_nanos() + 1));
        let executed = output::pipe()
            .and_then(|stdout| Ok((stdout, output::pipe()?)))
            .map_err(|error| Reply::Failed {
                what: format!("cannot make a pipe: {error}"),
            })
            .and_then(|((stdout, its_stdout), (stderr, its_stderr))| {
                let place = Place {
                    unified,
                    procs,
                    stdout: its_stdout,
                    stderr: its_stderr,
                };
                let executed = execute::execute(&request.program, place, self.host);
                let executed = executed.map_err(|(step, error)| Reply::NotStarted {
                    step,
                    errno: error.raw_os_error().unwrap_or(libc::EIO),
                })?;
                Ok((executed, stdout, stderr))
            });
        let (executed, stdout, stderr) = match executed {
            Ok(executed) => executed,
            Err(reply) => {
                // What the run before left open goes on being read.
                let left = earlier.filter(|_| !pipes.is_empty()).map(|record| Live {
                    record,
                    pid: None,
                    pipes,
                    log,
                    memory: None,
                    unsaved: false,
                    lost: None,
                });
                return Err((left, reply));
            }
        };
        pipes.push(Pipe::new(stdout, Stream::Stdout));
        pipes.push(Pipe::new(stderr, Stream::Stderr));
        let run = Run {
            pid: executed.host_pid,
            uid: request.program.uid,
            gid: request.program.gid,
            started,
            end: None,
        };
        let record = match earlier {
            Some(earlier) => earlier.again(request.spec, run),
            None => ExecutableRecord {
                cell: self.birth.cell.clone(),
                name: request.name,
                spec: request.spec,
                runs: 1,
                run,
                earlier: Vec::new(),
            },
        };
        Ok(Live {
            record,
            pid: Some(executed.pid),
            pipes,
            log,
            memory,
            unsaved: true,
            lost: None,
        })
    }
}

/// What a wait found.
#[derive(Default)]
struct Ready {
    control: bool,
    signals: bool,
    pipes: Vec<(ExecutableName, usize)>,
}

impl Live {
    fn pump(&mut self, pipe: usize, buffer: &mut [u8]) -> Found {
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
    fn tidy(&mut self) {
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

    fn ended(&mut self, status: WaitStatus, buffer: &mut [u8]) {
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

    fn save(&mut self, records: &std::path::Path, cell: &crate::name::CellName) {
        let file = format!("{}.json", self.record.name.key(cell));
        self.unsaved = record::write(&records.join(file), &self.record).is_err();
    }

    /// Nothing more will come of it.
    fn is_over(&self) -> bool {
        self.pid.is_none() && self.pipes.is_empty() && !self.unsaved
    }
}

impl MemoryKills {
    fn begin(file: OwnedFd) -> Option<Self> {
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

fn forward(signals: &SignalFd, executables: &BTreeMap<ExecutableName, Live>) {
    while let Ok(Some(info)) = signals.read_signal() {
        let forwarded = FORWARDED.into_iter().find(|signal| {
            u32::try_from(*signal as i32).is_ok_and(|number| number == info.ssi_signo)
        });
        let Some(signal) =
            forwarded.and_then(|signal| rustix::process::Signal::from_named_raw(signal as i32))
        else {
            continue;
        };
        for pid in executables.values().filter_map(|live| live.pid) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

/// Takes leave of everything that has ended, those that lost their parent included.
fn reap(executables: &mut BTreeMap<ExecutableName, Live>, buffer: &mut [u8]) {
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        let mut all = executables.values_mut();
        if let Some(live) = all.find(|live| live.pid == Some(pid)) {
            live.ended(status, buffer);
        }
    }
}

/// An error with what is behind it.
fn said(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
