//! `mainstay schedule`: what nodes keep running, and timers.

mod add;
mod calendar;
mod list;

use std::time::Duration;

use clap::Subcommand;
use mainstay_api::schedule::schedule_service_client::ScheduleServiceClient;
use mainstay_api::schedule::{
    DestroyRequest, DisableRequest, EnableRequest, RunRequest, Schedule as Definition,
};
use mainstay_client::Answer;
use tonic::transport::Channel;

use super::connect;
use crate::cli::{Format, Global};
use crate::connection::Connection;
use crate::failure::Outcome;
use crate::output;

/// A node stops what runs before it forgets a schedule.
const DESTROY_TIMEOUT: Duration = Duration::from_secs(60);

/// Keep programs running, and run them at given times
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
    mainstay schedule enable web --cell web --allocate -- /usr/bin/web --port 8080\n  \
    mainstay schedule add-timer backup --calendar 'Mon..Fri 02:30 Europe/Zurich' --cell jobs -- /usr/bin/backup\n  \
    mainstay schedule add-timer rotate --every 1h --jitter 5m --service rotate\n  \
    mainstay schedule list\n  \
    mainstay schedule show backup\n  \
    mainstay schedule run backup\n  \
    mainstay schedule calendar '*/15 * * * *'\n\n\
    Schedules are kept on the node and survive its restart. Output is in mainstay cell logs.")]
pub enum Schedule {
    /// Keep a program running, or resume a disabled schedule
    Enable(add::Enable),
    /// Run a program or a service at given times
    AddTimer(add::AddTimer),
    /// Start nothing by a schedule any more; what runs, runs on
    #[command(after_help = "Examples:\n  mainstay schedule disable backup")]
    Disable {
        /// Name of the schedule
        name: String,
    },
    /// Remove a schedule and stop what runs by it
    #[command(after_help = "Examples:\n  mainstay schedule destroy backup")]
    Destroy {
        /// Name of the schedule
        name: String,
    },
    /// List the schedules, with their next and last runs
    #[command(
        visible_alias = "ls",
        after_help = "Examples:\n  mainstay schedule list\n  mainstay -n n1,n2 schedule list -o json"
    )]
    List,
    /// Show a schedule and its last runs
    #[command(after_help = "Examples:\n  mainstay schedule show backup")]
    Show {
        /// Name of the schedule
        name: String,
    },
    /// Run what a timer is for now
    #[command(after_help = "Examples:\n  mainstay schedule run backup")]
    Run {
        /// Name of the schedule
        name: String,
    },
    /// Show the next times of a calendar expression; no node is called
    Calendar(calendar::Show),
}

impl Schedule {
    pub async fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Enable(enable) => apply(global, enable.definition()?, "enabled").await,
            Self::AddTimer(timer) => apply(global, timer.definition()?, "enabled").await,
            Self::Disable { name } => disable(global, name).await,
            Self::Destroy { name } => destroy(global, name).await,
            Self::List => list::list(global).await,
            Self::Show { name } => list::show(global, &name).await,
            Self::Run { name } => run(global, name).await,
            Self::Calendar(show) => show.run(global),
        }
    }
}

fn service(client: &Connection) -> ScheduleServiceClient<Channel> {
    ScheduleServiceClient::new(client.channel())
        .max_decoding_message_size(mainstay_client::MAX_MESSAGE_BYTES)
}

async fn apply(global: &Global, definition: Definition, done: &str) -> Outcome {
    let client = connect(global).await?;
    let name = definition.name.clone();
    let request = EnableRequest {
        schedule: Some(definition),
    };
    let answers = client.call_all(request, |_, request| {
        let mut schedules = service(&client);
        async move { schedules.enable(request).await }
    });
    let answers = answers.await?;
    if global.output != Format::Table {
        output::print_answers(global.output, "schedule.Enabled", &answers)?;
        return client.finish();
    }
    for Answer { node, message } in &answers {
        let next = message.schedule.as_ref().and_then(|seen| seen.next);
        let next = next.map_or_else(String::new, |next| {
            format!(", next run {}", list::time(next))
        });
        let prefix = client.message_prefix(node);
        output::print(&format!("{prefix}schedule {name:?} {done}{next}\n"))?;
    }
    client.finish()
}

async fn disable(global: &Global, name: String) -> Outcome {
    let client = connect(global).await?;
    let request = DisableRequest { name: name.clone() };
    let answers = client.call_all(request, |_, request| {
        let mut schedules = service(&client);
        async move { schedules.disable(request).await }
    });
    let answers = answers.await?;
    if global.output == Format::Table {
        done(&client, &answers, &name, "disabled")?;
    } else {
        output::print_answers(global.output, "schedule.Disabled", &answers)?;
    }
    client.finish()
}

async fn destroy(global: &Global, name: String) -> Outcome {
    let client = connect(global).await?;
    let request = DestroyRequest { name: name.clone() };
    let timeout = global.timeout.max(DESTROY_TIMEOUT);
    let answers = client.call_all_within(timeout, request, |_, request| {
        let mut schedules = service(&client);
        async move { schedules.destroy(request).await }
    });
    let answers = answers.await?;
    if global.output == Format::Table {
        done(&client, &answers, &name, "destroyed")?;
    } else {
        output::print_answers(global.output, "schedule.Destroyed", &answers)?;
    }
    client.finish()
}

async fn run(global: &Global, name: String) -> Outcome {
    let client = connect(global).await?;
    let request = RunRequest { name: name.clone() };
    let answers = client.call_all(request, |_, request| {
        let mut schedules = service(&client);
        async move { schedules.run(request).await }
    });
    let answers = answers.await?;
    if global.output == Format::Table {
        done(&client, &answers, &name, "runs")?;
    } else {
        output::print_answers(global.output, "schedule.Begun", &answers)?;
    }
    client.finish()
}

fn done<M>(client: &Connection, answers: &[Answer<M>], name: &str, what: &str) -> Outcome {
    for Answer { node, .. } in answers {
        let prefix = client.message_prefix(node);
        output::print(&format!("{prefix}schedule {name:?} {what}\n"))?;
    }
    Ok(())
}
