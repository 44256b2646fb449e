//! `mainstay dmesg`

use std::io::Write;

use clap::Args;
use futures_util::StreamExt;
use mainstay_api::os::DmesgRequest;

use super::connect;
use crate::cli::Global;
use crate::failure::Outcome;
use crate::output::NodeLines;

/// Show the messages of the node's kernel
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay dmesg\n  \
    mainstay dmesg -f --new")]
pub struct Dmesg {
    /// Go on with new messages as they come
    #[arg(short, long)]
    follow: bool,

    /// Only messages that come from now on
    #[arg(long, requires = "follow")]
    new: bool,
}

impl Dmesg {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let mut machine = client.machine();
        let request = client.request(DmesgRequest {
            follow: self.follow,
            tail: self.new,
        });
        let mut stream = client.within(machine.dmesg(request)).await?.into_inner();
        let mut lines = NodeLines::new(global.output, client.asks_many());
        let mut out = std::io::stdout().lock();
        while let Some(data) = stream.next().await {
            let data = data?;
            client.heed(data.metadata.as_ref());
            let node = client.node_name(data.metadata.as_ref());
            lines.write(&mut out, &node, &data.bytes)?;
            out.flush()?;
        }
        lines.finish(&mut out)?;
        client.outcome()
    }
}
