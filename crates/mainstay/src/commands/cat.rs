//! `mainstay cat`

use std::io::Write;

use clap::Args;
use futures_util::StreamExt;
use mainstay_api::machine::ReadRequest;
use mainstay_api::machine::machine_service_client::MachineServiceClient;

use super::{connect, within};
use crate::cli::Global;
use crate::failure::Outcome;

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
        let mut service = MachineServiceClient::new(client.channel());
        let request = client.request(ReadRequest { path: self.path });
        let mut stream = within(global, service.read(request)).await?.into_inner();
        let mut out = std::io::stdout().lock();
        while let Some(data) = stream.next().await {
            out.write_all(&data?.bytes)?;
        }
        Ok(out.flush()?)
    }
}
