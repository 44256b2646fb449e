//! `mainstay du`

use clap::{ArgAction, Args};
use mainstay_api::machine::{DiskUsageInfo, DiskUsageRequest};

use super::connect;
use super::streams::{node_path, print_entries};
use crate::cli::Global;
use crate::failure::Outcome;
use mainstay_client::format::{parse_size, size};
use mainstay_paths::escape_wire;

/// Show the disk usage of directories
///
/// Counts allocated blocks and hard links once, as du does. A directory follows its entries. An
/// entry that cannot be read is a warning, and the exit code is 1.
#[derive(Debug, Args)]
#[command(
    visible_alias = "usage",
    disable_help_flag = true,
    after_help = "Examples:\n  \
    mainstay du -s /var /home             totals only\n  \
    mainstay du -d 1 /var                 with direct subdirectories\n  \
    mainstay du -a --threshold 100M /     files and directories of 100 MiB or more\n  \
    mainstay du -d 1 / -o json | jq -s 'sort_by(.size)[] | .name'"
)]
pub struct Du {
    /// Absolute paths
    #[arg(value_name = "PATH", default_value = "/", value_parser = node_path())]
    paths: Vec<String>,

    /// Show at most N levels of directories; deeper ones still count [default: unlimited]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..i64::from(i32::MAX)))]
    depth: Option<i32>,

    /// Show only the paths themselves, as -d 0
    #[arg(short, long, conflicts_with = "depth")]
    summarize: bool,

    /// Show files too, not only directories
    #[arg(short, long)]
    all: bool,

    /// Show only entries of at least SIZE (100M, 2G), or at most SIZE with a minus sign
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true, default_value = "0", hide_default_value = true, value_parser = parse_size)]
    threshold: i64,

    /// Show sizes in bytes
    #[arg(short, long)]
    bytes: bool,

    /// Show sizes with units (the default)
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

    /// Returns the depth of the request, where 0 is unlimited and 1 the paths themselves.
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
        format!("{size:>10}  {}\n", escape_wire(&info.name))
    }
}
