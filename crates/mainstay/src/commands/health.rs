//! `mainstay health`

use std::time::Duration;

use clap::Args;
use mainstay_api::machine::{EventsRequest, ServiceInfo};
use serde_json::json;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::connect;
use super::services::{health, is_up, last_message};
use crate::cli::{Format, Global};
use crate::connection::Connection;
use crate::failure::{Exit, Failure, Outcome};
use crate::output;
use mainstay_client::format::{Table, parse_duration, printable};

/// Check whether the node, or one gRPC service, is serving; wait until its services are up
///
/// The exit code is 0 if it is serving and 1 if it is not. With --wait it is 0 once every service of
/// `mainstay services` is up, and 1 if one is not when the time is over.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay health\n  \
    mainstay health machine.MachineService\n  \
    mainstay health -e 10.0.0.5 --timeout 2s && echo up\n  \
    mainstay -n n1,n2 health --wait=2m              until all services of two nodes are up")]
pub struct Health {
    /// Full name of a gRPC service [default: the whole node]
    service: Option<String>,

    /// Wait until all services are up, for at most TIME [default: 5m]
    #[arg(
        short,
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "5m",
        conflicts_with = "service",
        value_parser = parse_duration
    )]
    wait: Option<Duration>,
}

impl Health {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let service = self.service.unwrap_or_default();
        let down = match self.wait {
            Some(limit) => until_up(&client, limit).await?,
            None => Vec::new(),
        };
        let statuses = check(&client, &service).await?;
        let rows: Vec<_> = statuses
            .iter()
            .map(|(node, status)| {
                json!({ "node": node, "service": service, "status": status.as_str_name() })
            })
            .collect();
        match global.output {
            Format::Table => client.print_table(table(&service, &statuses))?,
            // Without -n there is one node, so no list.
            format if client.nodes().is_empty() => {
                for row in &rows {
                    output::print_document(format, row)?;
                }
            }
            format => output::print_document(format, &json!(rows))?,
        }
        client.finish()?;
        match statuses
            .iter()
            .find(|(_, status)| *status != ServingStatus::Serving)
        {
            None if down.is_empty() => Ok(()),
            None => Err(Failure::new(Exit::Failed, not_up(&down))),
            Some((node, _)) => Err(Failure::new(
                Exit::Failed,
                format!("node {node} answers but is not serving; mainstay logs mainstay shows why"),
            )),
        }
    }
}

/// A service that is not up.
struct Down {
    node: String,
    service: ServiceInfo,
}

/// Waits until all services are up, and returns those that are not when the time is over.
async fn until_up(client: &Connection, limit: Duration) -> Outcome<Vec<Down>> {
    let deadline = Instant::now() + limit;
    // Before the list, so that no change in between is missed.
    let mut machine = client.machine();
    let events = machine.events(client.request(EventsRequest::default()));
    let mut events = client.within(events).await?.into_inner();
    loop {
        let answers = client
            .call_all((), |mut machine, request| async move {
                machine.service_list(request).await
            })
            .await?;
        let services = answers.into_iter().flat_map(|answer| {
            let node = answer.node;
            let services = answer.message.services.into_iter();
            services.map(move |service| Down {
                node: node.clone(),
                service,
            })
        });
        let down: Vec<Down> = services.filter(|one| !is_up(&one.service)).collect();
        if down.is_empty() {
            return Ok(down);
        }
        match timeout_at(deadline, events.message()).await {
            Err(_) => return Ok(down),
            Ok(Ok(Some(_))) => {}
            Ok(Ok(None)) => {
                let text = "the node has ended the stream of events; ask again";
                return Err(Failure::new(Exit::Failed, text.to_owned()));
            }
            Ok(Err(status)) => return Err(status.into()),
        }
    }
}

fn not_up(down: &[Down]) -> String {
    let described = down.iter().map(|one| {
        let state = match health(&one.service) {
            "FAIL" => "unhealthy",
            _ => one.service.state.as_str(),
        };
        printable(&format!(
            "service {} of node {} is {state}: {}",
            one.service.id,
            one.node,
            last_message(&one.service)
        ))
    });
    described.collect::<Vec<_>>().join("; ")
}

/// Returns the status of every node that answered.
async fn check(client: &Connection, service: &str) -> Outcome<Vec<(String, ServingStatus)>> {
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    let explain = |status: Status| match status.code() {
        Code::NotFound => {
            Status::not_found(format!("gRPC service {service:?} not found on the node"))
        }
        _ => status,
    };
    let answers = client
        .call_each(client.timeout(), &request, |request| {
            let mut health = HealthClient::new(client.channel());
            async move { health.check(request).await.map_err(explain) }
        })
        .await?;
    let statuses = answers.into_iter();
    Ok(statuses
        .map(|answer| (answer.node, answer.message.status()))
        .collect())
}

fn table(service: &str, statuses: &[(String, ServingStatus)]) -> Table {
    let service = match service {
        "" => "(node)",
        service => service,
    };
    let mut table = Table::new(&["NODE", "SERVICE", "STATUS"]);
    for (node, status) in statuses {
        table.row(vec![
            node.clone(),
            service.to_owned(),
            status.as_str_name().to_owned(),
        ]);
    }
    table
}
