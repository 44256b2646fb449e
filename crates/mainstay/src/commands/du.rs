//! `mainstay du`

use clap::{ArgAction, Args};
use mainstay_api::machine::{DiskUsageInfo, DiskUsageRequest};

use super::connect;
use super::streams::print_entries;
use crate::cli::Global;
use crate::failure::Outcome;
use mainstay_client::format::{parse_size, printable, size};

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
        let stream = client
            .within(machine.disk_usage(request))
            .await?
            .into_inner();
        print_entries(&client, global.output, stream, |info| Some(self.line(info))).await
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
