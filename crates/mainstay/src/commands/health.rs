//! `mainstay health`

use clap::Args;
use serde_json::json;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::connect;
use crate::cli::{Format, Global};
use crate::connection::Connection;
use crate::failure::{Exit, Failure, Outcome};
use crate::output;
use mainstay_client::format::Table;

/// Check whether the node, or one gRPC service, is serving
///
/// The exit code is 0 if it is serving and 1 if it is not.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay health\n  \
    mainstay health machine.MachineService\n  \
    mainstay health -e 10.0.0.5 --timeout 2s && echo up")]
pub struct Health {
    /// Full name of a gRPC service [default: the whole node]
    service: Option<String>,
}

impl Health {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let service = self.service.unwrap_or_default();
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
            None => Ok(()),
            Some((node, _)) => Err(Failure::new(
                Exit::Failed,
                format!("node {node} answers but is not serving; mainstay logs mainstay shows why"),
            )),
        }
    }
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
