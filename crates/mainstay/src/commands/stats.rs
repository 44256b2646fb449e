//! `mainstay stats`

use std::time::Duration;

use clap::Args;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::os::StatsRequest;

use super::containers::Scope;
use super::ps::cpu_time;
use super::{connect, within};
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output::{self, Table, size};

/// Show the memory and processor time that containers use
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay stats\n  \
    mainstay stats -k\n  \
    mainstay stats -k -o json | jq '.[].stats | max_by(.memory_usage) | .id'\n\n\
    MEMORY is the working set: all that is charged to a container but file cache unused of late.\n\
    CPU is the processor time since it was started. One that does not run uses nothing.")]
pub struct Stats {
    #[command(flatten)]
    scope: Scope,
}

impl Stats {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let mut service = MachineServiceClient::new(client.channel());
        let request = client.request(StatsRequest {
            namespace: self.scope.namespace(),
            driver: self.scope.driver(),
        });
        let answer = within(global, service.stats(request)).await?;
        let nodes = answer.into_inner().messages;
        if global.output != Format::Table {
            let answers = nodes
                .iter()
                .map(|node| (client.node_name(node.metadata.as_ref()), node));
            return output::per_node(global.output, "os.Stats", answers);
        }
        let mut table = Table::new(&["NODE", "NAMESPACE", "ID", "MEMORY", "CPU"]);
        for node in nodes {
            let name = client.node_name(node.metadata.as_ref());
            for stat in node.stats {
                table.row(vec![
                    name.clone(),
                    stat.namespace,
                    stat.id,
                    size(stat.memory_usage),
                    cpu_time(Duration::from_nanos(stat.cpu_usage).as_secs_f64()),
                ]);
            }
        }
        output::print(&table.to_string())
    }
}
