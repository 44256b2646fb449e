//! `mainstay df`

use clap::Args;
use mainstay_api::machine::machine_service_client::MachineServiceClient;

use super::{connect, within};
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output::{self, Table, percent, size};

/// Show what is mounted on the node and how full it is
#[derive(Debug, Args)]
#[command(
    visible_alias = "mounts",
    after_help = "Examples:\n  \
    mainstay df\n  \
    mainstay df --all\n  \
    mainstay df -o json | jq '.[].stats[] | select(.available < 1e9)'"
)]
pub struct Df {
    /// Also what has no size: the kernel's own file systems, and mounts that do not answer
    #[arg(short, long)]
    all: bool,
}

impl Df {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let mut service = MachineServiceClient::new(client.channel());
        let answer = within(global, service.mounts(client.request(()))).await?;
        let mut nodes = answer.into_inner().messages;
        for node in &mut nodes {
            node.stats.retain(|stat| self.all || stat.size > 0);
        }
        if global.output != Format::Table {
            let answers = nodes
                .iter()
                .map(|node| (client.node_name(node.metadata.as_ref()), node));
            return output::per_node(global.output, "machine.Mounts", answers);
        }
        let mut table = Table::new(&[
            "NODE",
            "FILESYSTEM",
            "SIZE",
            "USED",
            "AVAILABLE",
            "USE",
            "MOUNTED ON",
        ]);
        for node in nodes {
            let name = client.node_name(node.metadata.as_ref());
            for stat in node.stats {
                let used = stat.size.saturating_sub(stat.available);
                table.row(vec![
                    name.clone(),
                    stat.filesystem,
                    size(stat.size),
                    size(used),
                    size(stat.available),
                    percent(used, stat.size),
                    stat.mounted_on,
                ]);
            }
        }
        output::print(&table.to_string())
    }
}
