//! `mainstay health`

use clap::Args;
use serde_json::json;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::{connect, within};
use crate::cli::{Format, Global};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{self, Table};

/// Ask whether the node, or one of its services, is serving
///
/// Exits with 0 when it is and with 1 when it is not.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay health\n  \
    mainstay health machine.MachineService\n  \
    mainstay health -e 10.0.0.5 --timeout 2s && echo up")]
pub struct Health {
    /// A service by its full name [default: the node as a whole]
    service: Option<String>,
}

impl Health {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let service = self.service.unwrap_or_default();
        let mut health = HealthClient::new(client.channel());
        let request = client.request(HealthCheckRequest {
            service: service.clone(),
        });
        let status = within(global, health.check(request))
            .await
            .map_err(|failure| {
                if failure.exit == Exit::NotFound {
                    Failure::new(
                        Exit::NotFound,
                        format!("the node has no service {service:?}"),
                    )
                } else {
                    failure
                }
            })?;
        let status = status.into_inner().status();
        let node = client.node_name(None);
        match global.output {
            Format::Table => {
                let mut table = Table::new(&["NODE", "SERVICE", "STATUS"]);
                let shown = if service.is_empty() {
                    "(node)"
                } else {
                    &service
                };
                table.row(vec![
                    node,
                    shown.to_owned(),
                    status.as_str_name().to_owned(),
                ]);
                output::print(&table.to_string())?;
            }
            format => output::document(
                format,
                &json!({ "node": node, "service": service, "status": status.as_str_name() }),
            )?,
        }
        if status == ServingStatus::Serving {
            Ok(())
        } else {
            Err(Failure::new(
                Exit::Failed,
                "the node answers, but is not serving",
            ))
        }
    }
}
