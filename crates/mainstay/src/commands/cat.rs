//! `mainstay cat`

use clap::Args;
use mainstay_api::machine::ReadRequest;

use super::connect;
use super::streams::{node_path, print_text};
use crate::cli::{Format, Global};
use crate::failure::Outcome;

/// Print a file
#[derive(Debug, Args)]
#[command(
    visible_alias = "read",
    after_help = "Examples:\n  \
    mainstay cat /etc/os-release\n  \
    mainstay cat /proc/loadavg\n  \
    mainstay cat /var/log/big.log | zstd > big.log.zst"
)]
pub struct Cat {
    /// Absolute path of a regular file
    #[arg(value_parser = node_path())]
    path: String,
}

impl Cat {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let mut machine = client.machine();
        let request = client.request(ReadRequest { path: self.path });
        let stream = client.within(machine.read(request)).await?.into_inner();
        print_text(&client, Format::Table, stream).await
    }
}
