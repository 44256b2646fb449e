//! `mainstay schedule enable` and `add-timer`

use std::time::Duration;

use clap::Args;
use mainstay_api::runtime::Executable;
use mainstay_api::schedule::{Schedule, Timer};
use mainstay_client::format::parse_duration;

use crate::failure::{Failure, Outcome};

/// Keep a program running, or resume a disabled schedule
///
/// The program is started whenever it is not running, at once and after a restart of the node; each
/// time it ends soon, the delay before the next start doubles, up to a minute. Without a command,
/// a schedule that was disabled is resumed. A changed definition takes effect with the next start.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay schedule enable web --cell web --allocate -- /usr/bin/web --port 8080\n  \
    mainstay schedule enable backup")]
pub struct Enable {
    /// Name of the schedule: 1 to 63 letters, digits and `-`
    name: String,

    #[command(flatten)]
    program: Program,
}

/// Run a program or a service at given times
///
/// A calendar is written as for systemd timers (`Mon..Fri 06:30`, `*-*-01 00:00`, `daily`) or with the
/// five fields of cron (`*/15 * * * *`). A run that is due while the one before goes on is skipped.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay schedule add-timer backup --calendar 'Mon..Fri 02:30' --time-zone Europe/Zurich --cell jobs -- /usr/bin/backup\n  \
    mainstay schedule add-timer sync --calendar '*/15 * * * *' --run-timeout 10m --cell jobs --allocate -- /usr/bin/sync-all\n  \
    mainstay schedule add-timer rotate --every 1h --jitter 5m --catch-up --service rotate")]
pub struct AddTimer {
    /// Name of the schedule: 1 to 63 letters, digits and `-`
    name: String,

    /// Run at the times of this expression, of systemd or of cron
    #[arg(
        long,
        visible_aliases = ["on-calendar", "cron"],
        value_name = "EXPRESSION",
        required_unless_present = "every",
        conflicts_with = "every"
    )]
    calendar: Option<String>,

    /// Run at this interval
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    every: Option<Duration>,

    /// Time zone of a calendar that names none [default: UTC]
    #[arg(long, value_name = "ZONE", conflicts_with = "every")]
    time_zone: Option<String>,

    /// Delay each run by a random time up to TIME
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    jitter: Option<Duration>,

    /// Make up for missed times with one run
    #[arg(long)]
    catch_up: bool,

    /// Stop a run after TIME [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    run_timeout: Option<Duration>,

    /// Service to start, instead of a program
    #[arg(
        long,
        value_name = "NAME",
        required_unless_present = "command",
        conflicts_with_all = ["command", "cell"]
    )]
    service: Option<String>,

    #[command(flatten)]
    program: Program,
}

#[derive(Debug, Args)]
struct Program {
    /// Cell to run in
    #[arg(long, value_name = "CELL", requires = "command")]
    cell: Option<String>,

    /// Allocate the cell if it does not exist
    #[arg(long, requires = "cell")]
    allocate: bool,

    /// Run as this UID [default: 0]
    #[arg(long, value_name = "UID", requires = "command")]
    uid: Option<u32>,

    /// Run as this GID [default: 0]
    #[arg(long, value_name = "GID", requires = "command")]
    gid: Option<u32>,

    /// Set an environment variable; may be repeated
    #[arg(long, value_name = "NAME=VALUE", requires = "command")]
    env: Vec<String>,

    /// Working directory inside the cell [default: /]
    #[arg(long, value_name = "DIR", requires = "command")]
    workdir: Option<String>,

    /// Program and its arguments, executed without a shell
    #[arg(
        last = true,
        value_name = "COMMAND",
        requires = "cell",
        help_heading = "Arguments"
    )]
    command: Vec<String>,
}

impl Program {
    fn executable(self) -> Outcome<Option<Executable>> {
        let Some(cell) = self.cell else {
            return Ok(None);
        };
        let command = shlex::try_join(self.command.iter().map(String::as_str))
            .map_err(|_| Failure::usage("the command contains a NUL byte"))?;
        Ok(Some(Executable {
            cell_name: cell,
            command,
            uid: self.uid,
            gid: self.gid,
            environment: self.env,
            working_directory: self.workdir.unwrap_or_default(),
            ..Executable::default()
        }))
    }
}

impl Enable {
    pub(super) fn definition(self) -> Outcome<Schedule> {
        Ok(Schedule {
            name: self.name,
            allocate: self.program.allocate,
            executable: self.program.executable()?,
            ..Schedule::default()
        })
    }
}

impl AddTimer {
    pub(super) fn definition(self) -> Outcome<Schedule> {
        let wire = |what: &str, time: Option<Duration>| {
            let time = time.map(prost_types::Duration::try_from).transpose();
            time.map_err(|_| Failure::usage(format!("the {what} is too long")))
        };
        let timer = Timer {
            calendar: self.calendar.unwrap_or_default(),
            interval: wire("interval", self.every)?,
            time_zone: self.time_zone.unwrap_or_default(),
            jitter: wire("jitter", self.jitter)?,
            catch_up: self.catch_up,
            timeout: wire("timeout", self.run_timeout)?,
        };
        Ok(Schedule {
            name: self.name,
            allocate: self.program.allocate,
            executable: self.program.executable()?,
            service: self.service.unwrap_or_default(),
            timer: Some(timer),
        })
    }
}
