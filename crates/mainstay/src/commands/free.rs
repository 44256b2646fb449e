//! `mainstay free`

use clap::Args;
use mainstay_api::os::Memory;

use super::connect;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;
use mainstay_client::Answer;
use mainstay_client::format::{Table, size};

/// Show memory and swap
#[derive(Debug, Args)]
#[command(
    visible_alias = "memory",
    after_help = "Examples:\n  \
    mainstay free\n  \
    mainstay free -o json | jq '.[0].meminfo.memavailable'    # KiB, as the kernel prints it"
)]
pub struct Free {}

impl Free {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let answers = client
            .call_all((), |mut machine, request| async move {
                machine.memory(request).await
            })
            .await?;
        match global.output {
            Format::Table => output::print(&table(&answers))?,
            format => output::print_answers(format, "os.Memory", &answers)?,
        }
        client.finish()
    }
}

fn table(answers: &[Answer<Memory>]) -> String {
    let header = [
        "NODE",
        "",
        "TOTAL",
        "USED",
        "FREE",
        "SHARED",
        "BUFFERS",
        "CACHE",
        "AVAILABLE",
    ];
    let mut table = Table::new(&header);
    for Answer { node, message } in answers {
        let info = message.meminfo.unwrap_or_default();
        let kib = |number: u64| size(number.saturating_mul(1024));
        table.row(vec![
            node.clone(),
            "memory".to_owned(),
            kib(info.memtotal),
            kib(info.memtotal.saturating_sub(info.memavailable)),
            kib(info.memfree),
            kib(info.shmem),
            kib(info.buffers),
            kib(info.cached.saturating_add(info.sreclaimable)),
            kib(info.memavailable),
        ]);
        table.row(vec![
            node.clone(),
            "swap".to_owned(),
            kib(info.swaptotal),
            kib(info.swaptotal.saturating_sub(info.swapfree)),
            kib(info.swapfree),
        ]);
    }
    table.to_string()
}
