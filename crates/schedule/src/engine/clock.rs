//! Waiting for a moment of the wall clock, and for jumps of that clock.

use std::io;
use std::os::fd::OwnedFd;

use jiff::Timestamp;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Far enough: only a jump of the clock ends the wait.
const NEVER_SECONDS: i64 = 253_402_300_000;

/// A timer of CLOCK_REALTIME.
#[derive(Debug)]
pub(super) struct Clock(AsyncFd<OwnedFd>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Woken {
    Due,
    /// The clock was set.
    Jumped,
}

#[expect(
    unsafe_code,
    reason = "registering an owned file descriptor with the reactor"
)]
fn watched(timer: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is one open descriptor until it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }?)
}

impl Clock {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Realtime, flags)?;
        Ok(Self(watched(timer)?))
    }

    /// Waits until that time or a jump of the clock, whichever is first.
    pub(super) async fn wait_until(&self, at: Option<Timestamp>) -> io::Result<Woken> {
        let (seconds, nanos) = match at {
            // A zero would disarm it.
            Some(at) => (at.as_second().max(1), at.subsec_nanosecond().max(0)),
            None => (NEVER_SECONDS, 0),
        };
        let once = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: seconds,
                tv_nsec: nanos.into(),
            },
        };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(self.0.get_ref(), flags, &once)?;
        loop {
            let mut ready = self.0.readable().await?;
            let read = ready.try_io(|timer| {
                let mut expirations = [0; 8];
                Ok(rustix::io::read(timer.get_ref(), &mut expirations)?)
            });
            match read {
                Ok(Ok(_)) => return Ok(Woken::Due),
                Ok(Err(error)) if Errno::from_io_error(&error) == Some(Errno::CANCELED) => {
                    return Ok(Woken::Jumped);
                }
                Ok(Err(error)) => return Err(error),
                // Nothing yet.
                Err(_) => {}
            }
        }
    }
}
