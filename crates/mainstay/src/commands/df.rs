//! `mainstay df`

use clap::Args;
use mainstay_api::machine::Mounts;

use super::connect;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;
use mainstay_client::Answer;
use mainstay_client::format::{Table, percent, size};

/// Show mounted file systems and their usage
#[derive(Debug, Args)]
#[command(
    visible_alias = "mounts",
    after_help = "Examples:\n  \
    mainstay df\n  \
    mainstay df --all\n  \
    mainstay df -o json | jq '.[].stats[] | select(.available < 1e9)'"
)]
pub struct Df {
    /// Include file systems without a size: pseudo file systems and mounts that do not respond
    #[arg(short, long)]
    all: bool,
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
                .retain(|stat| self.all || stat.size > 0);
        }
        match global.output {
            Format::Table => output::print(&table(answers))?,
            format => output::print_answers(format, "machine.Mounts", &answers)?,
        }
        client.finish()
    }
}

fn table(answers: Vec<Answer<Mounts>>) -> String {
    let mut table = Table::new(&[
        "NODE",
        "FILESYSTEM",
        "SIZE",
        "USED",
        "AVAILABLE",
        "USE",
        "MOUNTED ON",
    ]);
    for Answer { node, message } in answers {
        for stat in message.stats {
            let used = stat.size.saturating_sub(stat.available);
            table.row(vec![
                node.clone(),
                stat.filesystem,
                size(stat.size),
                size(used),
                size(stat.available),
                percent(used, stat.size),
                stat.mounted_on,
            ]);
        }
    }
    table.to_string()
}
