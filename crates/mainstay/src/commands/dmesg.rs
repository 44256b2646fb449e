//! `mainstay dmesg`

use std::io::Write;

use clap::Args;
use futures_util::StreamExt;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::os::DmesgRequest;
use serde_json::json;

use super::{connect, within};
use crate::cli::{Format, Global};
use crate::failure::{Outcome, warn};
use crate::output;

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
        let mut service = MachineServiceClient::new(client.channel());
        let request = client.request(DmesgRequest {
            follow: self.follow,
            tail: self.new,
        });
        let mut stream = within(global, service.dmesg(request)).await?.into_inner();
        let mut out = std::io::stdout().lock();
        while let Some(data) = stream.next().await {
            let data = data?;
            if let Some(metadata) = data.metadata.as_ref().filter(|m| !m.error.is_empty()) {
                warn(&metadata.error);
            }
            match global.output {
                Format::Table => {
                    out.write_all(&data.bytes)?;
                    out.flush()?;
                }
                _ if data.bytes.is_empty() => {}
                format => {
                    let node = client.node_name(data.metadata.as_ref());
                    let text = String::from_utf8_lossy(&data.bytes);
                    let line = json!({ "node": node, "line": text.trim_end_matches('\n') });
                    output::stream_item(format, &line)?;
                }
            }
        }
        Ok(())
    }
}
