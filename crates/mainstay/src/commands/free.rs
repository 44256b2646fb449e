//! `mainstay free`

use clap::Args;
use mainstay_api::machine::machine_service_client::MachineServiceClient;

use super::{connect, within};
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output::{self, Table, size};

/// Show the memory of the node
#[derive(Debug, Args)]
#[command(
    visible_alias = "memory",
    after_help = "Examples:\n  \
    mainstay free\n  \
    mainstay free -o json | jq '.[0].meminfo.memavailable'    # KiB, as the kernel prints it"
)]
pub struct Free {}

impl Free {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let mut service = MachineServiceClient::new(client.channel());
        let answer = within(global, service.memory(client.request(()))).await?;
        let nodes = answer.into_inner().messages;
        if global.output != Format::Table {
            let answers = nodes
                .iter()
                .map(|node| (client.node_name(node.metadata.as_ref()), node));
            return output::per_node(global.output, "os.Memory", answers);
        }
        let header = [
            "NODE",
            "",
            "TOTAL",
            "USED",
            "FREE",
            "SHARED",
            "BUFFERS",
            "CACHE",
            "AVAILABLE",
        ];
        let mut table = Table::new(&header);
        for node in &nodes {
            let name = client.node_name(node.metadata.as_ref());
            let info = node.meminfo.unwrap_or_default();
            let kib = |number: u64| size(number.saturating_mul(1024));
            table.row(vec![
                name.clone(),
                "memory".to_owned(),
                kib(info.memtotal),
                kib(info.memtotal.saturating_sub(info.memavailable)),
                kib(info.memfree),
                kib(info.shmem),
                kib(info.buffers),
                kib(info.cached.saturating_add(info.sreclaimable)),
                kib(info.memavailable),
            ]);
            table.row(vec![
                name,
                "swap".to_owned(),
                kib(info.swaptotal),
                kib(info.swaptotal.saturating_sub(info.swapfree)),
                kib(info.swapfree),
            ]);
        }
        output::print(&table.to_string())
    }
}
