//! `mainstay services`

use std::time::Duration;

use clap::Args;
use mainstay_api::machine::{ServiceInfo, ServiceList};

use super::connect;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;
use mainstay_client::Answer;
use mainstay_client::format::{Table, duration};

/// List services with state, health and last event
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay services\n  \
    mainstay -n n1,n2 services\n  \
    mainstay services -o json | jq '.[].services[] | select(.state != \"Running\") | .id'\n\n\
    HEALTH is the result of the last health check, or - for a service without one.\n\
    LAST CHANGE is the age of the last event.")]
pub struct Services {}

impl Services {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let answers = client
            .call_all((), |mut machine, request| async move {
                machine.service_list(request).await
            })
            .await?;
        match global.output {
            Format::Table => client.print_table(table(answers))?,
            format => output::print_answers(format, "machine.ServiceList", &answers)?,
        }
        client.finish()
    }
}

pub(super) fn table(answers: Vec<Answer<ServiceList>>) -> Table {
    let mut table = Table::new(&["NODE", "ID", "STATE", "HEALTH", "LAST CHANGE", "MESSAGE"]);
    for Answer { node, message } in answers {
        for service in message.services {
            table.row(vec![
                node.clone(),
                service.id.clone(),
                service.state.clone(),
                health(&service).to_owned(),
                last_change(&service),
                last_message(&service),
            ]);
        }
    }
    table
}

pub(super) fn health(service: &ServiceInfo) -> &'static str {
    match &service.health {
        Some(health) if health.unknown => "-",
        Some(health) if health.healthy => "OK",
        Some(_) => "FAIL",
        None => "-",
    }
}

/// The reason for a state, or for an unhealthy service that of its health.
pub(super) fn last_message(service: &ServiceInfo) -> String {
    let events = service.events.as_ref();
    let last = events.and_then(|events| events.events.last());
    last.map(|event| event.msg.clone()).unwrap_or_default()
}

fn last_change(service: &ServiceInfo) -> String {
    let events = service.events.as_ref();
    let last = events.and_then(|events| events.events.last()?.ts);
    last.map_or_else(|| "-".to_owned(), age)
}

/// The age of a time, as `3 s ago`.
pub(super) fn age(at: prost_types::Timestamp) -> String {
    let now = jiff::Timestamp::now();
    let at = jiff::Timestamp::new(at.seconds, at.nanos);
    // A clock that differs may put it into the future.
    let age = at
        .ok()
        .and_then(|at| Duration::try_from(now.duration_since(at)).ok());
    format!("{} ago", duration(age.unwrap_or_default()))
}

/// Returns whether a service counts as up: finished or skipped, or running and, if it has a health
/// check, healthy.
pub(super) fn is_up(service: &ServiceInfo) -> bool {
    match service.state.as_str() {
        "Finished" | "Skipped" => true,
        "Running" => {
            let health = service.health.as_ref();
            health.is_none_or(|health| health.unknown || health.healthy)
        }
        _ => false,
    }
}
