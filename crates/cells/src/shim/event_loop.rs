//! The event loop of a shim: one thread that waits for connections, output and exits.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use mainstay_error_chain::chain;
use mainstay_journal::{LogLimits, Stream, Timestamp};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitOptions, WaitStatus};

use super::attachable::Attachable;
use super::oom_kills::OomKills;
use super::output_log::OutputLog;
use super::output_pipe::{self, OutputPipe};
use super::protocol::{self, Reply, Request, StartRequest};
use super::pty;
use super::spawn::{self, ChildFds, ChildStdio};
use super::supervised::{Spawned, Supervised};
use super::{ShimSpec, control};
use crate::frame;
use crate::name::ExecutableName;
use crate::record::{self, ExecutableRecord, Run};
use crate::spec::Namespace;

/// Pages of it are touched only as far as there is output.
const BUFFER_BYTES: usize = 256 * 1024;
/// Delay before a record that could not be written, such as on a full disk, is written again.
const SAVE_RETRY: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};
/// Signals that are forwarded to the executables of the cell.
const FORWARDED: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

type Executables = BTreeMap<ExecutableName, Supervised>;

pub(super) struct EventLoop<'a> {
    pub(super) spec: &'a ShimSpec,
    pub(super) control: UnixListener,
    pub(super) records: PathBuf,
    pub(super) logs: PathBuf,
    /// PID 1 of the cell's PID namespace, if it has its own.
    pub(super) init: Option<Pid>,
    /// Everything in the cell has exited with it.
    pub(super) init_exited: Cell<bool>,
}

impl EventLoop<'_> {
    pub(super) fn run(self) -> io::Result<()> {
        let mut mask = SigSet::from_iter(FORWARDED);
        mask.add(Signal::SIGCHLD);
        mask.thread_block()?;
        // Writes to the standard input of an executable that has closed it.
        SigSet::from_iter([Signal::SIGPIPE]).thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&mask, flags)?;
        self.control.set_nonblocking(true)?;
        let mut executables = Executables::new();
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let ready = self.wait(&signals, &executables)?;
            for (name, pipe) in ready.pipes {
                if let Some(executable) = executables.get_mut(&name) {
                    executable.read_pipe(pipe, &mut buffer);
                }
            }
            for executable in executables.values_mut() {
                executable.flush();
            }
            // After the output: the last line of an executable comes before its exit.
            if ready.signals {
                forward_signals(&signals, &executables);
                self.reap(&mut executables, &mut buffer);
            }
            for executable in executables.values_mut().filter(|one| one.unsaved) {
                // Retried after a while.
                let _ = executable.save(&self.records, &self.spec.cell);
            }
            if ready.control {
                self.serve(&mut executables, &mut buffer);
            }
            for executable in executables.values_mut() {
                executable.serve_attachments(&mut buffer);
            }
            // Nothing can be forked into the namespace any more; the daemon starts a new shim.
            if self.init_exited.get() && executables.values().all(Supervised::has_ended) {
                return Ok(());
            }
            forget_oldest_outputs(&mut executables);
            executables.retain(|_, executable| !executable.is_finished());
        }
    }

    fn wait(&self, signals: &SignalFd, executables: &Executables) -> io::Result<Ready> {
        let mut fds = vec![
            PollFd::new(&self.control, PollFlags::IN),
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
        ];
        let mut pipes = Vec::new();
        for (name, executable) in executables {
            for (index, pipe) in executable.pipes.iter().enumerate() {
                fds.push(PollFd::new(pipe.file(), PollFlags::IN));
                pipes.push((name, index));
            }
        }
        for attachable in executables
            .values()
            .filter_map(|one| one.attachable.as_ref())
        {
            attachable.poll_fds(&mut fds);
        }
        let unsaved = executables.values().any(|executable| executable.unsaved);
        match poll(&mut fds, unsaved.then_some(&SAVE_RETRY)) {
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

    /// Serves one connection at a time: there is one daemon, and it waits for the reply.
    fn serve(&self, executables: &mut Executables, buffer: &mut [u8]) {
        let own_pids = !self.spec.share.contains(&Namespace::Pid);
        // A peer that hangs up or sends an invalid frame is dropped.
        let Ok(Some(stream)) = control::accept(&self.control, own_pids) else {
            return;
        };
        let Ok(Some((body, fds))) = frame::receive_bytes(&stream) else {
            return;
        };
        let request = match Request::decode(&body) {
            Ok(request) => request,
            Err(error) => {
                // A daemon that this shim does not understand understands this version.
                let _ = Reply::failed(&error.to_string()).send(&stream, protocol::VERSION_2);
                return;
            }
        };
        let version = request.version();
        // The earlier run of that name may have exited a moment ago.
        self.reap(executables, buffer);
        let reply = match request {
            // The daemon waits for the exit of this shim, and sends it to a new one.
            Request::Start(_) if self.init_exited.get() => return,
            Request::Start(request) => match self.start(*request, fds, executables) {
                Ok(record) => Reply::Started(Box::new(record)),
                Err(reply) => reply,
            },
            Request::Reap { .. } => {
                self.reap_all(executables, buffer);
                for executable in executables.values_mut().filter(|one| one.unsaved) {
                    // Retried after a while.
                    let _ = executable.save(&self.records, &self.spec.cell);
                }
                Reply::Reaped
            }
            Request::Report(request) => {
                let known = executables.get(&request.name);
                match known.filter(|executable| executable.unsaved) {
                    Some(executable) => Reply::Started(Box::new(executable.record.clone())),
                    None => Reply::failed("its record is on disk"),
                }
            }
            Request::Attach(request) => match executables.get_mut(&request.name) {
                Some(executable) if executable.record.run.started == request.started => {
                    match &mut executable.attachable {
                        Some(attachable) => return attachable.attach(stream, &request),
                        None => Reply::NotAttachable,
                    }
                }
                _ => Reply::Ended,
            },
        };
        let _ = reply.send(&stream, version);
    }

    /// Reaps every child that has exited; with a shared PID namespace, orphans too.
    fn reap(&self, executables: &mut Executables, buffer: &mut [u8]) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            self.reaped(pid, status, executables, buffer);
        }
    }

    /// Waits for every child that was killed, and reaps it. PID 1 of the cell's PID namespace is
    /// not among them: it reaps the orphans inside, and lives as long as the shim.
    fn reap_all(&self, executables: &mut Executables, buffer: &mut [u8]) {
        loop {
            let pid = match self.init {
                None => None,
                Some(_) => match executables.values().find_map(|executable| executable.pid) {
                    None => return,
                    pid => pid,
                },
            };
            match rustix::process::waitpid(pid, WaitOptions::empty()) {
                Ok(Some((pid, status))) => self.reaped(pid, status, executables, buffer),
                Err(rustix::io::Errno::INTR) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn reaped(
        &self,
        pid: Pid,
        status: WaitStatus,
        executables: &mut Executables,
        buffer: &mut [u8],
    ) {
        if self.init == Some(pid) {
            // After all others: the kernel kills and waits for them first.
            self.init_exited.set(true);
        }
        let mut all = executables.values_mut();
        if let Some(executable) = all.find(|executable| executable.pid == Some(pid)) {
            executable.reaped(status, buffer);
        }
    }

    fn start(
        &self,
        request: StartRequest,
        fds: Vec<OwnedFd>,
        executables: &mut Executables,
    ) -> Result<ExecutableRecord, Reply> {
        let name = request.name.clone();
        let before = executables.get_mut(&name);
        if before.as_ref().is_some_and(|before| before.pid.is_some()) {
            return Err(Reply::Running);
        }
        let limits = LogLimits {
            file_bytes: request.log_file_bytes,
            total_bytes: request.log_total_bytes,
        };
        // Pipes that an earlier run has left open are read on, into the same log.
        let mut opened = None;
        let log = match before {
            Some(before) => &mut before.log,
            None => opened.insert(self.open_log(&name, limits)?),
        };
        log.set_limits(limits);
        log.keep_free(request.log_keep_free);
        if !request.log_with_first_line {
            log.create()
                .map_err(|error| Reply::failed(&chain(&error)))?;
        }
        let started = start_time_after(log.last_time());
        let spawned = match self.spawn(&request, fds) {
            Ok(spawned) => spawned,
            Err(reply) => {
                if let Some(log) = opened {
                    self.remove_unused_log(&name, log);
                }
                return Err(reply);
            }
        };
        let run = Run {
            pid: spawned.pid.as_raw_nonzero().get(),
            uid: request.program.uid,
            gid: request.program.gid,
            started,
            end: None,
        };
        let executable = match (executables.remove(&name), opened) {
            (Some(mut before), _) => {
                before.record = before.record.again(request.spec, run);
                before
            }
            (None, Some(log)) => Supervised::new(self.next_record(&request, run), log),
            (None, None) => return Err(Reply::failed("its log is closed")),
        };
        let pid = spawned.pid;
        let executable = executables.entry(name.clone()).or_insert(executable);
        executable.begin(spawned);
        if let Err(error) = executable.save(&self.records, &self.spec.cell) {
            // Nothing runs of which there is no record: the next daemon would not know it.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            executables.remove(&name);
            return Err(Reply::failed(&format!("cannot write its record: {error}")));
        }
        Ok(executable.record.clone())
    }

    fn open_log(&self, name: &ExecutableName, limits: LogLimits) -> Result<OutputLog, Reply> {
        let log = OutputLog::open(&self.logs, name.key(&self.spec.cell), limits);
        log.map_err(|error| Reply::failed(&chain(&error)))
    }

    /// Removes the log of an executable that never ran, which an earlier start has left or a reader
    /// has created: no record would lead to it.
    fn remove_unused_log(&self, name: &ExecutableName, log: OutputLog) {
        drop(log);
        let key = name.key(&self.spec.cell);
        if !self.records.join(format!("{key}.json")).exists() {
            // On failure the next daemon removes it.
            let _ = std::fs::remove_dir_all(self.logs.join(key));
        }
    }

    /// The record of a new run, with the earlier runs that are on disk.
    fn next_record(&self, request: &StartRequest, run: Run) -> ExecutableRecord {
        let file = format!("{}.json", request.name.key(&self.spec.cell));
        let spec = request.spec.clone();
        match record::read_executable(&self.records.join(file)) {
            Ok(earlier) => ExecutableRecord {
                allocated: Some(self.spec.allocated),
                ..earlier.again(spec, run)
            },
            Err(_) => ExecutableRecord {
                cell: self.spec.cell.clone(),
                name: request.name.clone(),
                spec,
                runs: 1,
                run,
                earlier: Vec::new(),
                allocated: Some(self.spec.allocated),
            },
        }
    }

    fn spawn(&self, request: &StartRequest, fds: Vec<OwnedFd>) -> Result<Spawned, Reply> {
        let mut fds = fds.into_iter();
        let unified = if request.unified { fds.next() } else { None };
        let procs = fds.by_ref().take(request.procs).collect();
        let oom_kills = if request.counts_memory_kills {
            fds.next().and_then(OomKills::begin)
        } else {
            None
        };
        let (stdio, pipes, attachable) = open_stdio(request)?;
        let child_fds = ChildFds {
            unified,
            procs,
            stdio,
        };
        let spawned = spawn::spawn(&request.program, child_fds);
        let pid = spawned.map_err(|(step, error)| Reply::NotStarted {
            step,
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        })?;
        Ok(Spawned {
            pid,
            pipes,
            attachable,
            oom_kills,
        })
    }
}

/// Opens the standard input, output and error of an executable: the ends of the child, and ours.
fn open_stdio(
    request: &StartRequest,
) -> Result<(ChildStdio, Vec<OutputPipe>, Option<Attachable>), Reply> {
    if let Some(size) = request.spec.terminal {
        let failed = |error: io::Error| Reply::failed(&format!("cannot open a terminal: {error}"));
        let program = &request.program;
        let first = program.users.map_or(0, |users| users.first);
        let (uid, gid) = (
            program.uid.saturating_add(first),
            program.gid.saturating_add(first),
        );
        let (master, terminal) = pty::open(size, uid, gid).map_err(failed)?;
        let output = master.try_clone().map_err(failed)?;
        let attachable = Attachable::of_terminal(master).map_err(failed)?;
        return Ok((
            ChildStdio::Terminal(terminal),
            vec![OutputPipe::of_terminal(output)],
            Some(attachable),
        ));
    }
    let failed = |error: io::Error| Reply::failed(&format!("cannot create a pipe: {error}"));
    let (stdout, child_stdout) = output_pipe::pipe().map_err(failed)?;
    let (stderr, child_stderr) = output_pipe::pipe().map_err(failed)?;
    let (child_stdin, attachable) = if request.spec.stdin {
        let (child_stdin, stdin) = output_pipe::input_pipe().map_err(failed)?;
        (Some(child_stdin), Some(Attachable::of_pipe(stdin)))
    } else {
        (None, None)
    };
    let stdio = ChildStdio::Pipes {
        stdin: child_stdin,
        stdout: child_stdout,
        stderr: child_stderr,
    };
    let pipes = vec![
        OutputPipe::new(stdout, Stream::Stdout),
        OutputPipe::new(stderr, Stream::Stderr),
    ];
    Ok((stdio, pipes, attachable))
}

/// Forgets the terminal output of those that ended first, if many have ended unread.
fn forget_oldest_outputs(executables: &mut Executables) {
    /// Terminals that have ended, whose output waits for a client.
    const MAX_ENDED: usize = 8;
    let mut ended: Vec<&mut Supervised> = executables
        .values_mut()
        .filter(|one| one.has_ended() && one.attachable.is_some())
        .collect();
    let surplus = ended.len().saturating_sub(MAX_ENDED);
    if surplus == 0 {
        return;
    }
    ended.sort_by_key(|one| one.record.run.end.map(|end| end.at));
    for one in ended.iter_mut().take(surplus) {
        one.attachable = None;
    }
}

/// Start times identify runs and divide their output, so each is later than the last line.
fn start_time_after(last: Option<Timestamp>) -> i64 {
    let now = Timestamp::now().as_nanos();
    last.map_or(now, |last| now.max(last.as_nanos().saturating_add(1)))
}

/// The file descriptors that a wait found readable.
#[derive(Default)]
struct Ready {
    control: bool,
    signals: bool,
    pipes: Vec<(ExecutableName, usize)>,
}

fn forward_signals(signals: &SignalFd, executables: &Executables) {
    while let Ok(Some(info)) = signals.read_signal() {
        let forwarded = FORWARDED.into_iter().find(|signal| {
            u32::try_from(*signal as i32).is_ok_and(|number| number == info.ssi_signo)
        });
        let Some(signal) =
            forwarded.and_then(|signal| rustix::process::Signal::from_named_raw(signal as i32))
        else {
            continue;
        };
        for pid in executables.values().filter_map(|executable| executable.pid) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}
