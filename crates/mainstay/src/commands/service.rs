//! `mainstay service`

use std::time::Duration;

use clap::{Args, Subcommand};
use mainstay_api::machine::{
    ServiceInfo, ServiceList, ServiceRestartRequest, ServiceStartRequest, ServiceStopRequest,
};

use super::connect;
use super::logs::Logs;
use super::services::{age, health};
use crate::cli::{Format, Global};
use crate::connection::Connection;
use crate::failure::{Exit, Failure, Outcome};
use crate::output;
use mainstay_client::Answer;
use mainstay_client::format::{local_time, printable};

/// The node bounds a stop by the grace period of the service; this is longer than any.
const MIN_TIMEOUT: Duration = Duration::from_secs(600);

/// Show, start, stop or restart a service, or show its log
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay service web\n  \
    mainstay service web restart\n  \
    mainstay -n n1,n2 service web stop\n  \
    mainstay service web logs -f\n\n\
    A stop also stops the services that require this one, which start again with it. A stop and a\n\
    restart wait until the process has ended, regardless of --timeout.")]
pub struct Service {
    /// Service id as in `mainstay services`
    id: String,

    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show state, health and recent events [default]
    #[command(
        after_help = "Examples:\n  mainstay service web\n  mainstay service web status -o json"
    )]
    Status,
    /// Start the service and those it requires
    #[command(after_help = "Examples:\n  mainstay service web start")]
    Start,
    /// Stop the service; it stays stopped until it is started
    #[command(
        after_help = "Examples:\n  mainstay service web stop\n  mainstay -n n1,n2 service web stop"
    )]
    Stop,
    /// Stop the service and start it again
    #[command(after_help = "Examples:\n  mainstay service web restart")]
    Restart,
    /// Show the log of the service
    #[command(
        after_help = "Examples:\n  mainstay service web logs --tail 100\n  mainstay service web logs -f"
    )]
    Logs(LogOptions),
}

#[derive(Debug, Args)]
struct LogOptions {
    /// Follow new lines
    #[arg(short, long)]
    follow: bool,

    /// Show the last N lines [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    tail: Option<i32>,
}

impl Service {
    pub async fn run(self, global: &Global) -> Outcome {
        let id = self.id;
        match self.action.unwrap_or(Action::Status) {
            Action::Status => status(&id, global).await,
            Action::Logs(options) => {
                let logs = Logs::of_service(id, options.follow, options.tail);
                logs.run(global).await
            }
            Action::Start => {
                let client = connect(global).await?;
                let answers = client
                    .call_all(
                        ServiceStartRequest { id },
                        |mut machine, request| async move { machine.service_start(request).await },
                    )
                    .await?;
                let format = global.output;
                if format != Format::Table {
                    output::print_answers(format, "machine.ServiceStart", &answers)?;
                    return client.finish();
                }
                let said = answers.into_iter();
                confirm(
                    &client,
                    said.map(|answer| (answer.node, answer.message.resp)),
                )
            }
            Action::Stop => {
                let client = connect(global).await?;
                let bound = global.timeout.max(MIN_TIMEOUT);
                let answers = client
                    .call_all_within(
                        bound,
                        ServiceStopRequest { id },
                        |mut machine, request| async move { machine.service_stop(request).await },
                    )
                    .await?;
                let format = global.output;
                if format != Format::Table {
                    output::print_answers(format, "machine.ServiceStop", &answers)?;
                    return client.finish();
                }
                let said = answers.into_iter();
                confirm(
                    &client,
                    said.map(|answer| (answer.node, answer.message.resp)),
                )
            }
            Action::Restart => {
                let client = connect(global).await?;
                let bound = global.timeout.max(MIN_TIMEOUT);
                let answers = client
                    .call_all_within(
                        bound,
                        ServiceRestartRequest { id },
                        |mut machine, request| async move {
                            machine.service_restart(request).await
                        },
                    )
                    .await?;
                let format = global.output;
                if format != Format::Table {
                    output::print_answers(format, "machine.ServiceRestart", &answers)?;
                    return client.finish();
                }
                let said = answers.into_iter();
                confirm(
                    &client,
                    said.map(|answer| (answer.node, answer.message.resp)),
                )
            }
        }
    }
}

fn confirm(client: &Connection, said: impl Iterator<Item = (String, String)>) -> Outcome {
    for (node, text) in said {
        let prefix = client.message_prefix(&node);
        output::print(&format!("{prefix}{}\n", printable(&text)))?;
    }
    client.finish()
}

async fn status(id: &str, global: &Global) -> Outcome {
    let client = connect(global).await?;
    let mut answers = client
        .call_all((), |mut machine, request| async move {
            machine.service_list(request).await
        })
        .await?;
    let mut missing = Vec::new();
    for Answer { node, message } in &mut answers {
        message.services.retain(|service| service.id == id);
        if message.services.is_empty() {
            missing.push(node.clone());
        }
    }
    answers.retain(|answer| !answer.message.services.is_empty());
    if !answers.is_empty() {
        match global.output {
            Format::Table => print_status(&client, &answers)?,
            format => output::print_answers(format, "machine.ServiceList", &answers)?,
        }
    }
    client.finish()?;
    match missing.first() {
        None => Ok(()),
        Some(node) => Err(Failure::new(
            Exit::NotFound,
            format!(
                "service {id:?} not found on node {node}; mainstay services shows the services of a \
                 node"
            ),
        )),
    }
}

fn print_status(client: &Connection, answers: &[Answer<ServiceList>]) -> Outcome {
    for Answer { node, message } in answers {
        for service in &message.services {
            let prefix = client.message_prefix(node);
            output::print(&format!("{prefix}{}", described(service)))?;
        }
    }
    Ok(())
}

/// The service as lines of text.
fn described(service: &ServiceInfo) -> String {
    let mut lines = vec![format!("{} {}", service.id, service.state)];
    if let Some(checked) = service.health.as_ref().filter(|health| !health.unknown) {
        let since = checked.last_change.map(|at| format!(" since {}", age(at)));
        let reason = match checked.last_message.as_str() {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        lines.push(format!(
            "health {}{}{reason}",
            health(service),
            since.unwrap_or_default()
        ));
    }
    let events = service.events.iter().flat_map(|events| &events.events);
    for event in events {
        let at = event
            .ts
            .and_then(|at| jiff::Timestamp::new(at.seconds, at.nanos).ok());
        let at = at.map_or_else(|| "-".to_owned(), local_time);
        lines.push(format!("  {at}  {:<11}  {}", event.state, event.msg));
    }
    let lines = lines.into_iter().map(|line| printable(&line) + "\n");
    lines.collect()
}
