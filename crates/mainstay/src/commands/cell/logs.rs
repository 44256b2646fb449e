//! `mainstay cell logs`

use clap::Args;
use mainstay_api::machine::LogsRequest;

use super::{NAMESPACE, connect, executable};
use crate::cli::Global;
use crate::commands::streams::{check_times, print_text};
use crate::failure::{Exit, Failure, Outcome};
use mainstay_client::format::{parse_time, wire_time};

/// Show the stdout and stderr of an executable
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay cell logs web server\n  \
    mainstay cell logs web server -f --tail 20\n  \
    mainstay cell logs web/worker job --since 10m")]
pub struct CellLogs {
    /// Name of the cell
    cell: String,

    /// Name of the executable as in `mainstay cell list`
    name: String,

    /// Follow new lines
    #[arg(short, long)]
    follow: bool,

    /// Show the last N lines [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    tail: Option<i32>,

    /// Show lines since TIME: RFC 3339, or a duration before now (10m, 2h, 1day)
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    since: Option<jiff::Timestamp>,

    /// Show lines until TIME
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    until: Option<jiff::Timestamp>,
}

impl CellLogs {
    pub async fn run(self, global: &Global) -> Outcome {
        check_times(self.since, self.until)?;
        let client = connect(global).await?;
        let node = client.only_node("cell logs")?;
        let (cell, name) = (&self.cell, &self.name);
        let found = executable(&client, node, cell, name).await?;
        let found = found.ok_or_else(|| {
            Failure::new(
                Exit::NotFound,
                format!(
                    "executable {name:?} not found in cell {cell:?}; mainstay cell list {cell} shows its executables"
                ),
            )
        })?;
        let request = LogsRequest {
            namespace: NAMESPACE.to_owned(),
            id: found.log,
            follow: self.follow,
            tail_lines: self.tail.unwrap_or(-1),
            since: self.since.map(wire_time),
            until: self.until.map(wire_time),
            ..LogsRequest::default()
        };
        let mut machine = client.machine();
        let stream = client.within(machine.logs(client.request(request))).await?;
        print_text(&client, global.output, stream.into_inner()).await
    }
}
