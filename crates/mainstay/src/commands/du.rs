//! `mainstay du`

use std::io::{BufWriter, Write};

use clap::{ArgAction, Args};
use futures_util::StreamExt;
use mainstay_api::machine::{DiskUsageInfo, DiskUsageRequest};
use serde_json::json;

use super::connect;
use crate::cli::{Format, Global};
use crate::failure::{Exit, Failure, Outcome, warn};
use crate::output::{self, parse_size, printable, size};

/// Show what directories of the node take on disk
///
/// Counted as du counts: what is allocated, hard links once. Each directory comes after what is
/// in it. What cannot be read is told; the exit code is then 1.
#[derive(Debug, Args)]
#[command(
    visible_alias = "usage",
    disable_help_flag = true,
    after_help = "Examples:\n  \
    mainstay du -s /var /home             only these\n  \
    mainstay du -d 1 /var                 and what is directly below\n  \
    mainstay du -a --threshold 100M /     every file and directory of 100 MiB or more\n  \
    mainstay du -d 1 / -o json | jq -s 'sort_by(.size)[] | .name'"
)]
pub struct Du {
    #[arg(value_name = "PATH", default_value = "/")]
    paths: Vec<String>,

    /// Only directories so many levels below; all of them are counted
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..i64::from(i32::MAX)))]
    depth: Option<i32>,

    /// Only the paths themselves, as -d 0
    #[arg(short, long, conflicts_with = "depth")]
    summarize: bool,

    /// Files too, not only directories
    #[arg(short, long)]
    all: bool,

    /// Only what takes at least so much (100M, 2G); with a minus sign, at most so much
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true, default_value = "0", hide_default_value = true, value_parser = parse_size)]
    threshold: i64,

    /// Sizes in bytes
    #[arg(short, long)]
    bytes: bool,

    /// Sizes with units, which they have anyway
    #[arg(short = 'h', long, conflicts_with = "bytes")]
    human_readable: bool,

    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

impl Du {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let mut machine = client.machine();
        let request = client.request(DiskUsageRequest {
            recursion_depth: self.levels(),
            all: self.all,
            threshold: self.threshold,
            paths: self.paths.clone(),
        });
        let mut stream = client
            .within(machine.disk_usage(request))
            .await?
            .into_inner();
        let mut failed = 0_u64;
        let mut out = BufWriter::with_capacity(64 << 10, std::io::stdout().lock());
        while let Some(info) = stream.next().await {
            let info = info?;
            if client.heed(info.metadata.as_ref()) {
                continue;
            }
            let node = client.node_name(info.metadata.as_ref());
            let before = client.before_line(&node);
            if !info.error.is_empty() {
                warn(&format!(
                    "{before}{}: {}",
                    printable(&info.name),
                    info.error
                ));
                failed += 1;
                continue;
            }
            let text = match global.output {
                Format::Table => format!("{before}{}", self.line(&info)),
                format => {
                    let mut value = output::value("machine.DiskUsageInfo", &info);
                    value["node"] = json!(node);
                    output::stream_text(format, &value)?
                }
            };
            out.write_all(text.as_bytes())?;
        }
        out.flush()?;
        client.outcome()?;
        if failed > 0 {
            return Err(Failure::new(
                Exit::Failed,
                format!("{failed} entries could not be read"),
            ));
        }
        Ok(())
    }

    /// On the wire 0 is everything and 1 the paths themselves.
    fn levels(&self) -> i32 {
        match self.depth {
            _ if self.summarize => 1,
            Some(depth) => depth.saturating_add(1),
            None => 0,
        }
    }

    fn line(&self, info: &DiskUsageInfo) -> String {
        let bytes = u64::try_from(info.size).unwrap_or(0);
        let size = if self.bytes {
            bytes.to_string()
        } else {
            size(bytes)
        };
        format!("{size:>10}  {}\n", printable(&info.name))
    }
}
