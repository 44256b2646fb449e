//! The loop of a shim: one thread that waits for callers, output and ends.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use mainstay_journal::{LogLimits, LogWriter, Stream, Timestamp};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::WaitOptions;

use super::executable::{Born, Live, MemoryKills, said};
use super::execute::{self, Place};
use super::output::{self, Pipe};
use super::protocol::{Reply, Request, StartRequest};
use super::{Birth, Host, control};
use crate::frame;
use crate::name::ExecutableName;
use crate::record::{self, ExecutableRecord, Run};
use crate::spec::Namespace;

/// Touched only as far as there is output.
const BUFFER_BYTES: usize = 256 * 1024;
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
        let reply = match self.start(*request, fds, executables) {
            Ok(record) => Reply::Started(Box::new(record)),
            Err(reply) => reply,
        };
        let _ = frame::send(&stream, &reply, &[]);
    }

    fn start(
        &self,
        request: StartRequest,
        fds: Vec<OwnedFd>,
        executables: &mut BTreeMap<ExecutableName, Live>,
    ) -> Result<ExecutableRecord, Reply> {
        let name = request.name.clone();
        let before = executables.get_mut(&name);
        if before.as_ref().is_some_and(|live| live.pid.is_some()) {
            return Err(Reply::Running);
        }
        let limits = LogLimits {
            file_bytes: request.log_file_bytes,
            total_bytes: request.log_total_bytes,
        };
        // What an earlier run has left open is read on, into the same log.
        let mut opened = None;
        let log = match before {
            Some(live) => &mut live.log,
            None => opened.insert(self.open_log(&name, limits)?),
        };
        log.set_limits(limits);
        let started = begin_after(log.last_time());
        let (born, memory) = match self.execute(&request, fds) {
            Ok(born) => born,
            Err(reply) => {
                if let Some(log) = opened {
                    self.forget_log(&name, log);
                }
                return Err(reply);
            }
        };
        let run = Run {
            pid: born.executed.host_pid,
            uid: request.program.uid,
            gid: request.program.gid,
            started,
            end: None,
        };
        let live = match (executables.remove(&name), opened) {
            (Some(mut live), _) => {
                live.record = live.record.again(request.spec, run);
                live
            }
            (None, Some(log)) => Live::new(self.record(&request, run), log),
            (None, None) => return Err(Reply::failed("its log is gone")),
        };
        let live = executables.entry(name).or_insert(live);
        live.begin(born, memory);
        live.save(&self.records, &self.birth.cell);
        Ok(live.record.clone())
    }

    fn open_log(&self, name: &ExecutableName, limits: LogLimits) -> Result<LogWriter, Reply> {
        let log = LogWriter::open(&self.logs, &name.key(&self.birth.cell), limits);
        log.map_err(|error| Reply::failed(&said(&error)))
    }

    /// What never ran has no output to keep, and no record by which its log would be found.
    fn forget_log(&self, name: &ExecutableName, log: LogWriter) {
        drop(log);
        let key = name.key(&self.birth.cell);
        if !self.records.join(format!("{key}.json")).exists() {
            // One that stays is found by the next daemon.
            let _ = std::fs::remove_dir_all(self.logs.join(key));
        }
    }

    /// The record of a new run, which knows of those before.
    fn record(&self, request: &StartRequest, run: Run) -> ExecutableRecord {
        let file = format!("{}.json", request.name.key(&self.birth.cell));
        let spec = request.spec.clone();
        match record::read::<ExecutableRecord>(&self.records.join(file)) {
            Ok(earlier) => earlier.again(spec, run),
            Err(_) => ExecutableRecord {
                cell: self.birth.cell.clone(),
                name: request.name.clone(),
                spec,
                runs: 1,
                run,
                earlier: Vec::new(),
            },
        }
    }

    fn execute(
        &self,
        request: &StartRequest,
        fds: Vec<OwnedFd>,
    ) -> Result<(Born, Option<MemoryKills>), Reply> {
        let mut fds = fds.into_iter();
        let unified = if request.unified { fds.next() } else { None };
        let procs = fds.by_ref().take(request.procs).collect();
        let memory = if request.counts_memory_kills {
            fds.next().and_then(MemoryKills::begin)
        } else {
            None
        };
        let no_pipe = |error: io::Error| Reply::failed(&format!("cannot make a pipe: {error}"));
        let (stdout, its_stdout) = output::pipe().map_err(no_pipe)?;
        let (stderr, its_stderr) = output::pipe().map_err(no_pipe)?;
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
        let pipes = [
            Pipe::new(stdout, Stream::Stdout),
            Pipe::new(stderr, Stream::Stderr),
        ];
        Ok((Born { executed, pipes }, memory))
    }
}

/// Times tell one run of an executable from another, so no two share one.
fn begin_after(last: Option<Timestamp>) -> i64 {
    let now = Timestamp::now().as_nanos();
    last.map_or(now, |last| now.max(last.as_nanos().saturating_add(1)))
}

/// What a wait found.
#[derive(Default)]
struct Ready {
    control: bool,
    signals: bool,
    pipes: Vec<(ExecutableName, usize)>,
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
