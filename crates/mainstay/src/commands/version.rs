//! `mainstay version`

use clap::Args;
use mainstay_api::machine::Version as NodeVersion;
use serde_json::json;

use super::connect;
use crate::build_info::build;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;
use mainstay_client::Answer;
use mainstay_client::format::Table;
use mainstay_client::format::to_json;

/// Name of the row of this command.
const THIS_COMMAND: &str = "(this command)";

/// Show the versions of this command and of the node
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay version\n  \
    mainstay version --client\n  \
    mainstay version --short\n  \
    mainstay version -o json | jq -r '.server[0].version.tag'")]
pub struct Version {
    /// Show only the version of this command; call no node
    #[arg(long)]
    client: bool,

    /// Show only the tags
    #[arg(long)]
    short: bool,
}

impl Version {
    pub async fn run(self, global: &Global) -> Outcome {
        let own = build();
        let own = json!({
            "tag": format!("v{}", own.version),
            "sha": own.sha,
            "built": own.built,
            "rust": own.rust,
            "arch": own.arch,
        });
        let mut outcome = Ok(());
        let servers = if self.client {
            Vec::new()
        } else {
            let client = connect(global).await?;
            let servers = client
                .call_all((), |mut machine, request| async move {
                    machine.version(request).await
                })
                .await?;
            outcome = client.finish();
            servers
        };
        match global.output {
            Format::Table if self.short => output::print(&short_table(&own, &servers))?,
            Format::Table => output::print(&table(&own, &servers))?,
            format => {
                let servers: Vec<_> = servers
                    .iter()
                    .map(|Answer { node, message }| {
                        let mut value = to_json("machine.Version", message);
                        value["node"] = json!(node);
                        value
                    })
                    .collect();
                let mut all = json!({ "client": own });
                if !self.client {
                    all["server"] = json!(servers);
                }
                output::print_document(format, &all)?;
            }
        }
        outcome
    }
}

fn short_table(own: &serde_json::Value, servers: &[Answer<NodeVersion>]) -> String {
    let mut table = Table::new(&["NODE", "TAG"]);
    let tag = own["tag"].as_str().unwrap_or_default();
    table.row(vec![THIS_COMMAND.to_owned(), tag.to_owned()]);
    for Answer { node, message } in servers {
        let version = message.version.clone().unwrap_or_default();
        table.row(vec![node.clone(), version.tag]);
    }
    table.to_string()
}

fn table(own: &serde_json::Value, servers: &[Answer<NodeVersion>]) -> String {
    let text = |key: &str| own[key].as_str().unwrap_or_default().to_owned();
    let mut table = Table::new(&["NODE", "TAG", "SHA", "BUILT", "OS/ARCH", "PLATFORM", "MODE"]);
    table.row(vec![
        THIS_COMMAND.to_owned(),
        text("tag"),
        text("sha"),
        text("built"),
        format!("{}/{}", std::env::consts::OS, text("arch")),
        String::new(),
        String::new(),
    ]);
    for Answer { node, message } in servers {
        let version = message.version.clone().unwrap_or_default();
        let platform = message.platform.clone().unwrap_or_default();
        table.row(vec![
            node.clone(),
            version.tag,
            version.sha,
            version.built,
            format!("{}/{}", version.os, version.arch),
            platform.name,
            platform.mode,
        ]);
    }
    table.to_string()
}
