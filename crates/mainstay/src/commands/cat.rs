//! `mainstay cat`

use clap::Args;
use futures_util::StreamExt;
use mainstay_api::machine::ReadRequest;

use super::connect;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output::NodeLines;

/// Print a file of the node
#[derive(Debug, Args)]
#[command(
    visible_alias = "read",
    after_help = "Examples:\n  \
    mainstay cat /etc/os-release\n  \
    mainstay cat /proc/loadavg\n  \
    mainstay cat /var/log/big.log | zstd > big.log.zst"
)]
pub struct Cat {
    /// A regular file, by its absolute path
    path: String,
}

impl Cat {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let mut machine = client.machine();
        let request = client.request(ReadRequest { path: self.path });
        let mut stream = client.within(machine.read(request)).await?.into_inner();
        let mut lines = NodeLines::new(Format::Table, client.asks_many());
        let mut out = std::io::stdout().lock();
        while let Some(data) = stream.next().await {
            let data = data?;
            client.heed(data.metadata.as_ref());
            lines.write(
                &mut out,
                &client.node_name(data.metadata.as_ref()),
                &data.bytes,
            )?;
        }
        lines.finish(&mut out)?;
        client.outcome()
    }
}
