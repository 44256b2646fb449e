//! `mainstay df`

use clap::Args;
use mainstay_api::machine::{MountStat, Mounts};

use super::connect;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;
use mainstay_client::Answer;
use mainstay_client::file_systems::{inodes_used, is_hidden, used};
use mainstay_client::format::{Table, percent, size};
use mainstay_paths::escape_wire;

/// Show mounted file systems and their usage
///
/// Counts as df does: a file system is shown once, space reserved for root is neither used nor
/// available, and percentages are rounded up.
#[derive(Debug, Args)]
#[command(
    visible_aliases = ["mounts", "diskfree"],
    after_help = "Examples:\n  \
    mainstay df\n  \
    mainstay df -i                        inodes\n  \
    mainstay df --all                     with pseudo file systems and bind mounts\n  \
    mainstay df -o json | jq '.[].stats[] | select(.available < 1e9)'"
)]
pub struct Df {
    /// Include pseudo file systems, further mounts of the same file system, and mounts that do not
    /// respond
    #[arg(short, long)]
    all: bool,

    /// Show inodes instead of space
    #[arg(short, long)]
    inodes: bool,
}

impl Df {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let mut answers = client
            .call_all((), |mut machine, request| async move {
                machine.mounts(request).await
            })
            .await?;
        for answer in &mut answers {
            answer
                .message
                .stats
                .retain(|stat| self.all || !is_hidden(stat));
        }
        match global.output {
            Format::Table => client.print_table(self.table(answers))?,
            format => output::print_answers(format, "machine.Mounts", &answers)?,
        }
        client.finish()
    }

    fn table(&self, answers: Vec<Answer<Mounts>>) -> Table {
        let titles = match self.inodes {
            false => ["SIZE", "USED", "AVAILABLE", "USE"],
            true => ["INODES", "USED", "FREE", "USE"],
        };
        let mut header = vec!["NODE", "FILESYSTEM"];
        header.extend(titles);
        header.push("MOUNTED ON");
        let mut table = Table::new(&header);
        for Answer { node, message } in answers {
            for stat in message.stats {
                let mut row = vec![node.clone(), escape_wire(&stat.filesystem)];
                row.extend(match self.inodes {
                    false => space(&stat),
                    true => inodes(&stat),
                });
                row.push(escape_wire(&stat.mounted_on));
                table.row(row);
            }
        }
        table
    }
}

fn space(stat: &MountStat) -> [String; 4] {
    let used = used(stat);
    [
        size(stat.size),
        size(used),
        size(stat.available),
        percent(used, used.saturating_add(stat.available)),
    ]
}

fn inodes(stat: &MountStat) -> [String; 4] {
    let used = inodes_used(stat);
    [
        stat.inodes.to_string(),
        used.to_string(),
        stat.inodes_free.to_string(),
        percent(used, stat.inodes),
    ]
}
