//! The rule that every start of the daemon follows, before it opens anything.
//!
//! A node runs the current slot. A trial that is due is run under a guard; a trial that was begun
//! and not confirmed has failed, whatever ended it. An installed binary that the package manager
//! has replaced since is what the operator wants now, and becomes the current slot.
//!
//! The process goes on as a daemon if any step fails: a node that runs the wrong one of two good
//! binaries is better than none.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mainstay_error_chain::chain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::guard::{self, Ended};
use crate::store::{identity, own_process};
use crate::sys;
use crate::{Digest, Outcome, SlotName, SlotRecord, Slots, Trial, TrialChannel};

/// Names the slot that a process was started from, so that it does not start it again.
const SLOT_VARIABLE: &str = "MAINSTAY_SLOT";

/// The bound on the death of a process that was sent SIGKILL.
const DEATH_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason that is recorded for a trial that nobody saw end.
const INTERRUPTED: &str = "the node ended during the trial (crash, power loss or SIGKILL), before the new version was \
     confirmed";

/// The result of the rule. A change to another binary does not return.
#[derive(Debug)]
pub enum Begin {
    /// Go on as the daemon. The notices are for its log.
    Serve {
        /// Sentences about what happened.
        notices: Vec<String>,
    },
    /// End with this exit code: the node was stopped during a trial.
    Exit(u8),
}

/// The action of a start, by the record alone.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Decision {
    /// This binary is the right one.
    Serve,
    /// The current slot is another binary.
    Exec(SlotName),
    /// A trial is due.
    Guard(Trial),
    /// A trial was begun and not confirmed.
    Interrupted,
    /// The installed binary was replaced.
    Adopt,
}

/// The running binary, compared with the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Own {
    slot: Option<SlotName>,
    /// True if this is the installed binary, and not the one that was recorded.
    is_new_installation: bool,
}

fn decide(record: &SlotRecord, own: Own) -> Decision {
    match &record.trial {
        Some(trial) if trial.tries_left == 0 => return Decision::Interrupted,
        _ if own.is_new_installation => return Decision::Adopt,
        Some(trial) => return Decision::Guard(trial.clone()),
        None => {}
    }
    match own.slot {
        Some(slot) if slot == record.current => Decision::Serve,
        _ => Decision::Exec(record.current),
    }
}

/// Follows the rule for the state directory `state`. `served_by` is the daemon that serves it now; this
/// one will be refused, unless that one is on trial and dies with its guard.
///
/// # Safety
///
/// The process must have one thread.
#[allow(unsafe_code)]
pub unsafe fn start(state: &Path, served_by: Option<u32>) -> Begin {
    let mut notices = Vec::new();
    let slots = Slots::of(state);
    if TrialChannel::is_open() {
        // SAFETY: the caller guarantees that there is one thread.
        unsafe {
            sys::take_listen_pid();
        }
        return Begin::Serve { notices };
    }
    let mut record = match slots.read() {
        Ok(Some(record)) => record,
        Ok(None) => return Begin::Serve { notices },
        Err(error) => {
            notices.push(format!("slots are ignored: {}", chain(&error)));
            return Begin::Serve { notices };
        }
    };
    // Held until this process executes another binary or ends.
    let _lock = match slots.lock() {
        Ok(Some(lock)) => lock,
        Ok(None) => return Begin::Serve { notices },
        Err(error) => {
            notices.push(format!("slots are ignored: cannot lock them: {error}"));
            return Begin::Serve { notices };
        }
    };
    let is_refused = match (served_by, &record.trial) {
        (None, _) => false,
        (Some(pid), Some(trial)) if trial.tries_left == 0 => !has_exited(pid),
        (Some(_), _) => true,
    };
    if is_refused {
        return Begin::Serve { notices };
    }
    slots.clean();
    loop {
        let own = own(&slots, &mut record);
        match decide(&record, own) {
            Decision::Serve => break,
            Decision::Exec(slot) => {
                notices.push(exec(&slots, &record, slot, false));
                break;
            }
            Decision::Adopt => {
                let version = record.version(record.current);
                match slots.adopt_own(&mut record) {
                    Ok(()) => notices.push(format!(
                        "the installed binary has changed and is now slot {} (before: {version})",
                        record.current
                    )),
                    Err(error) => notices.push(format!(
                        "the installed binary has changed and runs, but no slot: {}",
                        chain(&error)
                    )),
                }
                break;
            }
            Decision::Interrupted => {
                let reason = INTERRUPTED.to_owned();
                notices.push(end(&slots, &mut record, Outcome::Returned { reason }).0);
            }
            Decision::Guard(trial) => match run_trial(&slots, &mut record, &trial) {
                Step::Serve(notice) => {
                    notices.push(notice);
                    break;
                }
                Step::Exit(code) => return Begin::Exit(code),
            },
        }
    }
    Begin::Serve { notices }
}

/// Waits for a daemon on trial whose guard is gone, and which the kernel has therefore killed.
fn has_exited(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let Some(pidfd) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return true;
    };
    let timeout = Timespec::try_from(DEATH_TIMEOUT).ok();
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    matches!(poll(&mut fds, timeout.as_ref()), Ok(1..))
}

enum Step {
    Serve(String),
    Exit(u8),
}

/// Runs the trial under a guard, then executes the slot that is current by its result. Returns only
/// if that binary cannot be executed, or the node was stopped.
fn run_trial(slots: &Slots, record: &mut SlotRecord, trial: &Trial) -> Step {
    if let Some(trial) = &mut record.trial {
        // Before the first instruction of the new binary, and durably.
        trial.tries_left -= 1;
    }
    let counted = slots.write(record);
    let is_verified = !trial.verified_by.is_empty() && trial.verified_by == own_process();
    let verified = match record.content(trial.slot) {
        None => Err(format!("slot {} is empty", trial.slot)),
        Some(_) if is_verified => Ok(()),
        Some(content) => slots.verify(trial.slot, content),
    };
    let ended = match (counted, verified) {
        (Ok(()), Ok(())) => guard::run(&slots.binary(trial.slot), trial, |outcome| {
            end(slots, record, outcome).1
        }),
        (Err(error), _) => {
            let reason = format!("the trial cannot be recorded: {}", chain(&error));
            end(slots, record, Outcome::Returned { reason });
            Ended::Switch
        }
        (_, Err(reason)) => {
            end(slots, record, Outcome::Returned { reason });
            Ended::Switch
        }
    };
    match ended {
        Ended::Switch => Step::Serve(exec(slots, record, record.current, true)),
        Ended::Stopped(code) => Step::Exit(code),
    }
}

/// Records the result of the trial. Returns it as a sentence, and false if it is not recorded: a
/// version that would not be found again after a crash is not kept.
fn end(slots: &Slots, record: &mut SlotRecord, outcome: Outcome) -> (String, bool) {
    let before = record.clone();
    let now = jiff::Timestamp::now().to_string();
    record.end_trial(outcome, now.clone());
    slots.forget_expected();
    let written = slots.write(record);
    if let Err(error) = &written {
        *record = before;
        let reason = format!("the result cannot be recorded: {}", chain(error));
        record.end_trial(Outcome::Returned { reason }, now);
    }
    let text = record
        .last
        .as_ref()
        .map_or_else(String::new, |last| match &last.outcome {
            Outcome::Kept => format!("{} to {} confirmed", last.trial.kind, last.to),
            Outcome::Returned { reason } => {
                format!(
                    "{} to {} failed, {} runs again: {reason}",
                    last.trial.kind, last.to, last.from
                )
            }
        });
    (text, written.is_ok())
}

/// Executes the binary of a slot. Returns the reason if that fails.
fn exec(slots: &Slots, record: &SlotRecord, slot: SlotName, is_verified: bool) -> String {
    let binary = slots.binary(slot);
    if std::env::var(SLOT_VARIABLE).is_ok_and(|own| own == slot.directory())
        && slots.own_slot() == Some(slot)
    {
        return format!("slot {slot} runs already");
    }
    let content = record.content(slot);
    let verified = match content {
        None => Err(format!("slot {slot} is empty")),
        Some(_) if is_verified => Ok(()),
        Some(content) => slots.verify(slot, content),
    };
    let failed = match verified {
        Err(reason) => reason,
        Ok(()) => {
            let error = command(&binary).env(SLOT_VARIABLE, slot.directory()).exec();
            format!("cannot execute {}: {error}", binary.display())
        }
    };
    format!("this binary runs instead of slot {slot}: {failed}")
}

/// This process with another binary.
pub(crate) fn command(binary: &PathBuf) -> Command {
    let mut arguments = std::env::args_os();
    let mut command = Command::new(binary);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments);
    command.env_remove(crate::trial::TRIAL_VARIABLE);
    command
}

/// Compares the running binary with the record; remembers an identity that changed without the
/// content.
fn own(slots: &Slots, record: &mut SlotRecord) -> Own {
    let slot = slots.own_slot();
    let is_new_installation = slot.is_none() && is_new_installation(record);
    Own {
        slot,
        is_new_installation,
    }
}

fn is_new_installation(record: &mut SlotRecord) -> bool {
    const OWN_BINARY: &str = "/proc/self/exe";
    let Some(installed) = &mut record.installed else {
        return false;
    };
    let Ok(identity) = identity(Path::new(OWN_BINARY)) else {
        return false;
    };
    if installed.identity == identity {
        return false;
    }
    match std::fs::File::open(OWN_BINARY).and_then(Digest::of_reader) {
        Ok(digest) if digest == installed.digest => {
            // Copied or touched; written with the next change of the record.
            installed.identity = identity;
            false
        }
        Ok(_) => true,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SwitchKind;

    fn record(trial: Option<u32>) -> SlotRecord {
        SlotRecord {
            current: SlotName::A,
            a: None,
            b: None,
            installed: None,
            trial: trial.map(|tries_left| Trial {
                slot: SlotName::B,
                tries_left,
                kind: SwitchKind::Upgrade,
                actor_id: String::new(),
                staged: false,
                deadline_seconds: 1,
                verified_by: String::new(),
            }),
            last: None,
        }
    }

    fn own(slot: Option<SlotName>, is_new_installation: bool) -> Own {
        Own {
            slot,
            is_new_installation,
        }
    }

    #[test]
    fn the_current_slot_runs_without_a_trial() {
        let record = record(None);
        assert_eq!(
            decide(&record, own(Some(SlotName::A), false)),
            Decision::Serve
        );
        for other in [None, Some(SlotName::B)] {
            assert_eq!(
                decide(&record, own(other, false)),
                Decision::Exec(SlotName::A)
            );
        }
    }

    #[test]
    fn a_trial_is_started_once_from_every_binary() {
        for slot in [None, Some(SlotName::A), Some(SlotName::B)] {
            let due = record(Some(1));
            let trial = due.trial.clone().unwrap();
            assert_eq!(decide(&due, own(slot, false)), Decision::Guard(trial));
            assert_eq!(
                decide(&record(Some(0)), own(slot, false)),
                Decision::Interrupted
            );
        }
    }

    #[test]
    fn a_new_installation_replaces_a_staged_trial_but_not_the_report_of_a_failed_one() {
        assert_eq!(decide(&record(None), own(None, true)), Decision::Adopt);
        assert_eq!(decide(&record(Some(1)), own(None, true)), Decision::Adopt);
        assert_eq!(
            decide(&record(Some(0)), own(None, true)),
            Decision::Interrupted
        );
    }
}
