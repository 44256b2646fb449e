//! The guard of a trial: a process of one thread that runs the new daemon as its child, and ends it
//! unless it reports in time that it is healthy.
//!
//! The guard is the old binary in the process that was the daemon, so the service manager, a
//! container runtime or a shell sees one process that never exits. It has the listening sockets open
//! all the time; no connection is refused while the child starts, serves or fails. The kernel kills the child
//! with the guard.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow, Signal as NixSignal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::trial::{CONFIRMED, FAILED, HEALTHY, TRIAL_VARIABLE, channel, number};
use crate::{Outcome, Trial, start, sys};

/// The time a confirmed daemon has to hand over, beyond which it is killed: its own stop timeout is
/// shorter, and its state survives SIGKILL.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of the daemon's reports.
const MAX_REPORT_BYTES: usize = 8192;

/// The end of a trial.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The child is gone; execute the slot that is current now.
    Switch,
    /// The node was stopped.
    Stopped(u8),
}

/// Runs `binary` on trial. `record` persists the result before anything follows from it, and returns
/// false if it cannot.
pub(crate) fn run(
    binary: &PathBuf,
    trial: &Trial,
    mut record: impl FnMut(Outcome) -> bool,
) -> Ended {
    let ended = match Guard::start(binary, trial) {
        Ok(guard) => guard.watch(&mut record),
        Err(error) => {
            let reason = format!("cannot start {}: {error}", binary.display());
            record(Outcome::Returned { reason });
            Ended::Switch
        }
    };
    // The next program starts with the signals it expects.
    let _ = nix::sys::signal::sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&signal_set()), None);
    ended
}

fn signal_set() -> SigSet {
    [NixSignal::SIGTERM, NixSignal::SIGINT, NixSignal::SIGHUP]
        .into_iter()
        .collect()
}

struct Guard {
    child: Child,
    pidfd: OwnedFd,
    signals: SignalFd,
    channel: UnixStream,
    deadline: Instant,
    seconds: u64,
    report: Vec<u8>,
}

/// An event of the trial.
enum Happened {
    Healthy,
    Failed(String),
    Exited,
    Stop(Signal),
    TimedOut,
}

impl Guard {
    fn start(binary: &PathBuf, trial: &Trial) -> io::Result<Self> {
        let signals = signal_set();
        signals.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&signals, flags)?;
        let (channel, theirs) = channel()?;
        channel.set_nonblocking(true)?;
        let mut command = start::command(binary);
        command.env(TRIAL_VARIABLE, number(&theirs));
        sys::die_with_parent(&mut command, signal_set());
        let mut child = command.spawn()?;
        drop(theirs);
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pidfd = pid
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from));
        let pidfd = match pidfd {
            Ok(pidfd) => pidfd,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        let seconds = trial.deadline_seconds;
        Ok(Self {
            child,
            pidfd,
            signals,
            channel,
            deadline: Instant::now() + Duration::from_secs(seconds),
            seconds,
            report: Vec::new(),
        })
    }

    fn watch(mut self, record: &mut dyn FnMut(Outcome) -> bool) -> Ended {
        let reason = match self.next() {
            Happened::Healthy => return self.hand_over(record),
            Happened::Failed(reason) => format!("the new version reports: {reason}"),
            Happened::Exited => match self.child.wait() {
                Ok(status) => format!("the new version ended ({})", text(status)),
                Err(error) => format!("the new version ended: {error}"),
            },
            Happened::TimedOut => {
                format!("the new version was not healthy within {} s", self.seconds)
            }
            Happened::Stop(signal) => {
                let reason = "the node was stopped during the trial".to_owned();
                record(Outcome::Returned { reason });
                return self.stop(signal);
            }
        };
        self.kill();
        record(Outcome::Returned { reason });
        Ended::Switch
    }

    /// The new slot is recorded as current, then the child ends and this process becomes it.
    fn hand_over(mut self, record: &mut dyn FnMut(Outcome) -> bool) -> Ended {
        if !record(Outcome::Kept) {
            self.kill();
            return Ended::Switch;
        }
        // A child that cannot read it has ended.
        let _ = writeln!(self.channel, "{CONFIRMED}");
        self.deadline = Instant::now() + HANDOVER_TIMEOUT;
        loop {
            match self.next() {
                Happened::Exited => {
                    let _ = self.child.wait();
                    return Ended::Switch;
                }
                Happened::Stop(signal) => return self.stop(signal),
                Happened::TimedOut => {
                    self.kill();
                    return Ended::Switch;
                }
                Happened::Healthy | Happened::Failed(_) => {}
            }
        }
    }

    /// Forwards a signal that stops the node, and returns the exit code of the child.
    fn stop(mut self, mut signal: Signal) -> Ended {
        self.deadline = Instant::now() + HANDOVER_TIMEOUT;
        loop {
            let _ = pidfd_send_signal(&self.pidfd, signal);
            match self.next() {
                Happened::Stop(again) => signal = again,
                Happened::Exited => break,
                Happened::TimedOut => {
                    self.kill();
                    break;
                }
                Happened::Healthy | Happened::Failed(_) => {}
            }
        }
        let code = self.child.wait().ok().and_then(|status| status.code());
        Ended::Stopped(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for the next event.
    fn next(&mut self) -> Happened {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Happened::TimedOut;
            }
            let timeout = Timespec::try_from(left).ok();
            let mut fds = [
                PollFd::new(&self.pidfd, PollFlags::IN),
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
                PollFd::new(&self.channel, PollFlags::IN),
            ];
            if poll(&mut fds, timeout.as_ref()).is_err() {
                // Interrupted by a signal that is not ours.
                continue;
            }
            let [exited, signalled, reported] = fds.map(|fd| !fd.revents().is_empty());
            if signalled && let Some(signal) = self.signal() {
                return Happened::Stop(signal);
            }
            // A report that was made before the end counts: it has the reason.
            if reported && let Some(happened) = self.read_report() {
                return happened;
            }
            if exited {
                return Happened::Exited;
            }
        }
    }

    /// The signal that stops the node, if it is one; a reload is forwarded.
    fn signal(&mut self) -> Option<Signal> {
        let info = self.signals.read_signal().ok().flatten()?;
        match i32::try_from(info.ssi_signo).ok()? {
            libc::SIGHUP => {
                let _ = pidfd_send_signal(&self.pidfd, Signal::HUP);
                None
            }
            libc::SIGINT => Some(Signal::INT),
            _ => Some(Signal::TERM),
        }
    }

    fn read_report(&mut self) -> Option<Happened> {
        let mut buffer = [0; 1024];
        match self.channel.read(&mut buffer) {
            // EOF or garbage: the child has ended, or is not what it should be.
            Ok(0) => {
                let reason = "it closed the channel to its guard";
                return Some(self.ended_or(reason));
            }
            Ok(count) => self.report.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(_) => return Some(self.ended_or("the channel to its guard broke")),
        }
        let Some(end) = self.report.iter().position(|byte| *byte == b'\n') else {
            let too_long = self.report.len() > MAX_REPORT_BYTES;
            return too_long.then(|| Happened::Failed("its report has no end".to_owned()));
        };
        let line: Vec<u8> = self.report.drain(..=end).collect();
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if line == HEALTHY {
            return Some(Happened::Healthy);
        }
        let reason = line
            .strip_prefix(FAILED)
            .unwrap_or("its report is not understood");
        Some(Happened::Failed(crate::trial::one_line(reason)))
    }

    /// The exit of the child, which closes the channel a moment before, or else a failure.
    fn ended_or(&self, reason: &str) -> Happened {
        let timeout = Timespec::try_from(Duration::from_secs(1)).ok();
        let mut exited = [PollFd::new(&self.pidfd, PollFlags::IN)];
        match poll(&mut exited, timeout.as_ref()) {
            Ok(1..) => Happened::Exited,
            _ => Happened::Failed(reason.to_owned()),
        }
    }
}

fn text(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown status".to_owned(),
    }
}
