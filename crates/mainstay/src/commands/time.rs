//! `mainstay time`

use clap::Args;
use mainstay_api::time::time_service_client::TimeServiceClient;
use mainstay_api::time::{Time as NodeTime, TimeRequest};

use super::connect;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;
use mainstay_client::Answer;
use mainstay_client::format::{Table, local_time};

/// Show the clock of the node, compared with an NTP server
///
/// Compares with the NTP server of the node's configuration ([time] server). Without one it shows
/// the clock and whether the kernel keeps it synchronized.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay time\n  \
    mainstay time --check pool.ntp.org           needs the role os:operator\n  \
    mainstay time -n n1,n2,n3 -o json | jq '.[] | {node, offset}'\n\n\
    OFFSET is the time by which the node is behind; a node that is ahead has a negative one.\n\
    KERNEL is the kernel's own view: synchronized by a time daemon or not.")]
pub struct Time {
    /// Query this NTP server from the node: HOST, HOST:PORT or [ADDRESS]:PORT
    #[arg(short, long, value_name = "SERVER", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    check: Option<String>,
}

impl Time {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let service = || TimeServiceClient::new(client.channel());
        let answers = match self.check {
            Some(server) => {
                let request = TimeRequest { server };
                client
                    .call_all(request, |_, request| {
                        let mut time = service();
                        async move { time.time_check(request).await }
                    })
                    .await?
            }
            None => {
                client
                    .call_all((), |_, request| {
                        let mut time = service();
                        async move { time.time(request).await }
                    })
                    .await?
            }
        };
        match global.output {
            Format::Table => client.print_table(table(answers))?,
            format => output::print_answers(format, "time.Time", &answers)?,
        }
        client.finish()
    }
}

fn table(answers: Vec<Answer<NodeTime>>) -> Table {
    let mut table = Table::new(&["NODE", "SERVER", "TIME", "SERVER TIME", "OFFSET", "KERNEL"]);
    for Answer { node, message } in answers {
        let server = match message.server.as_str() {
            "" => "-".to_owned(),
            server => server.to_owned(),
        };
        let kernel = message.kernel.unwrap_or_default();
        table.row(vec![
            node,
            server,
            shown(message.localtime.as_ref()),
            shown(message.remotetime.as_ref()),
            message.offset.as_ref().map_or_else(nothing, offset),
            if kernel.synchronized {
                "synchronized".to_owned()
            } else {
                "not synchronized".to_owned()
            },
        ]);
    }
    table
}

fn nothing() -> String {
    "-".to_owned()
}

fn shown(time: Option<&prost_types::Timestamp>) -> String {
    let time = time.and_then(|time| jiff::Timestamp::new(time.seconds, time.nanos).ok());
    time.map_or_else(nothing, local_time)
}

/// Formats an offset with its sign: `+0.003120 s`.
fn offset(offset: &prost_types::Duration) -> String {
    let micros = i128::from(offset.seconds) * 1_000_000 + i128::from(offset.nanos) / 1000;
    let sign = if micros < 0 { '-' } else { '+' };
    let micros = micros.unsigned_abs();
    format!("{sign}{}.{:06} s", micros / 1_000_000, micros % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_have_a_sign_and_microseconds() {
        for (seconds, nanos, wanted) in [
            (0, 3_120_000, "+0.003120 s"),
            (-1, -500_000_000, "-1.500000 s"),
            (86_400, 0, "+86400.000000 s"),
            (0, -999, "+0.000000 s"),
        ] {
            assert_eq!(offset(&prost_types::Duration { seconds, nanos }), wanted);
        }
    }
}
