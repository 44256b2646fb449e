//! Schedules as callers specify and see them.

use std::time::Duration;

use mainstay_api::runtime;
use mainstay_api::schedule::{Schedule, ScheduleStatus, ScheduledRun, Timer as WireTimer};
use mainstay_cells::ExecutableSpec;
use mainstay_schedule::{Calendar, Entry, Status as Seen, Timer, When};
use prost_types::{Duration as WireDuration, Timestamp};
use tonic::Status;

use crate::engines::schedule::{Executable, Work};
use crate::rpc::status::invalid;
use crate::services::runtime::{cell_name, executable_name, executable_spec};

/// Converts a schedule; `None` if it is nothing but a name.
pub(super) fn entry(asked: Schedule) -> Result<Option<Entry<Work>>, Status> {
    let name = asked.name.parse().map_err(invalid)?;
    let timer = asked.timer.map(timer).transpose()?;
    let work = match (asked.executable, asked.service) {
        (None, service) if service.is_empty() => {
            if timer.is_some() || asked.allocate {
                return Err(Status::invalid_argument(
                    "the schedule has neither an executable nor a service",
                ));
            }
            return Ok(None);
        }
        (Some(_), service) if !service.is_empty() => {
            return Err(Status::invalid_argument(
                "the schedule has both an executable and a service; omit one",
            ));
        }
        (None, service) => {
            if timer.is_none() {
                return Err(Status::invalid_argument(
                    "a service is kept running by its own restart policy; a schedule of one needs \
                     a timer",
                ));
            }
            Work::Service { name: service }
        }
        (Some(mut executable), _) => {
            if executable.name.is_empty() {
                executable.name.clone_from(&asked.name);
            }
            Work::Executable(Box::new(read_executable(executable, asked.allocate)?))
        }
    };
    Ok(Some(Entry { name, work, timer }))
}

fn read_executable(asked: runtime::Executable, allocate: bool) -> Result<Executable, Status> {
    if asked.stdin || asked.terminal.is_some() {
        return Err(Status::invalid_argument(
            "a scheduled executable has neither a standard input nor a terminal",
        ));
    }
    let words = ExecutableSpec::split(&asked.command).map_err(invalid)?;
    Ok(Executable {
        cell: cell_name(&asked.cell_name)?,
        name: executable_name(&asked.name)?,
        allocate,
        spec: executable_spec(asked, words)?,
    })
}

fn timer(asked: WireTimer) -> Result<Timer, Status> {
    let zone = (!asked.time_zone.is_empty()).then_some(asked.time_zone);
    let when = match (asked.calendar.as_str(), asked.interval) {
        ("", None) => {
            return Err(Status::invalid_argument(
                "the timer has neither a calendar nor an interval",
            ));
        }
        ("", Some(_)) if zone.is_some() => {
            return Err(Status::invalid_argument(
                "a time zone has no effect on an interval; omit it",
            ));
        }
        ("", Some(every)) => When::Every(duration("interval", every)?),
        (_, Some(_)) => {
            return Err(Status::invalid_argument(
                "the timer has both a calendar and an interval; omit one",
            ));
        }
        (text, None) => When::Calendar {
            expression: text.parse::<Calendar>().map_err(invalid)?,
            time_zone: zone,
        },
    };
    let jitter = asked.jitter.map(|jitter| duration("jitter", jitter));
    let timeout = asked.timeout.map(|timeout| duration("timeout", timeout));
    Ok(Timer {
        when,
        jitter: jitter.transpose()?.unwrap_or_default(),
        catch_up: asked.catch_up,
        timeout: timeout.transpose()?,
    })
}

fn duration(what: &str, asked: WireDuration) -> Result<Duration, Status> {
    Duration::try_from(asked)
        .map_err(|_| Status::invalid_argument(format!("the {what} is negative or no duration")))
}

pub(super) fn status(seen: &Seen<Work>) -> ScheduleStatus {
    let runs = seen.runs.iter().map(|run| ScheduledRun {
        started: Some(timestamp(run.begun.started)),
        ended: Some(timestamp(run.ended.at)),
        succeeded: run.ended.succeeded,
        result: run.ended.result.clone(),
        pid: run.begun.pid,
    });
    let running = seen.running.iter().map(|begun| ScheduledRun {
        started: Some(timestamp(begun.started)),
        pid: begun.pid,
        ..ScheduledRun::default()
    });
    ScheduleStatus {
        schedule: Some(schedule(&seen.entry)),
        enabled: seen.enabled,
        next: seen.next.map(|next| Timestamp {
            seconds: next.as_second(),
            nanos: next.subsec_nanosecond(),
        }),
        running: seen.running.is_some(),
        runs: running.chain(runs).collect(),
        skipped: seen.skipped,
        missed: seen.missed,
    }
}

fn schedule(entry: &Entry<Work>) -> Schedule {
    let mut shown = Schedule {
        name: entry.name.to_string(),
        timer: entry.timer.as_ref().map(shown_timer),
        ..Schedule::default()
    };
    match &entry.work {
        Work::Service { name } => shown.service.clone_from(name),
        Work::Executable(it) => {
            let spec = &it.spec;
            shown.allocate = it.allocate;
            shown.executable = Some(runtime::Executable {
                name: it.name.to_string(),
                command: spec.command.clone(),
                description: spec.description.clone(),
                cell_name: it.cell.to_string(),
                uid: spec.uid,
                gid: spec.gid,
                environment: spec
                    .environment
                    .iter()
                    .map(|it| without_value(it))
                    .collect(),
                working_directory: spec.working_directory.clone().unwrap_or_default(),
                keep_capabilities: spec.keep_capabilities.clone(),
                allow_new_privileges: spec.allow_new_privileges,
                ..runtime::Executable::default()
            });
        }
    }
    shown
}

/// Every reader sees schedules; a value may be a secret.
fn without_value(variable: &str) -> String {
    let name = variable.split_once('=').map_or(variable, |(name, _)| name);
    format!("{name}=(redacted)")
}

fn shown_timer(timer: &Timer) -> WireTimer {
    let some = |time: Duration| (!time.is_zero()).then(|| wire(time));
    let mut shown = WireTimer {
        jitter: some(timer.jitter),
        catch_up: timer.catch_up,
        timeout: timer.timeout.map(wire),
        ..WireTimer::default()
    };
    match &timer.when {
        When::Every(every) => shown.interval = Some(wire(*every)),
        When::Calendar {
            expression,
            time_zone,
        } => {
            shown.calendar = expression.to_string();
            shown.time_zone = time_zone.clone().unwrap_or_default();
        }
    }
    shown
}

fn wire(time: Duration) -> WireDuration {
    WireDuration::try_from(time).unwrap_or_default()
}

fn timestamp(nanos: i64) -> Timestamp {
    const SECOND: i64 = 1_000_000_000;
    Timestamp {
        seconds: nanos.div_euclid(SECOND),
        nanos: i32::try_from(nanos.rem_euclid(SECOND)).unwrap_or(0),
    }
}
