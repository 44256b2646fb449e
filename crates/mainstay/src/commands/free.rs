//! `mainstay free`

use clap::Args;
use mainstay_api::os::Memory;

use super::connect;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;
use mainstay_client::Answer;
use mainstay_client::format::{Table, size, to_json};

/// Show memory and swap
#[derive(Debug, Args)]
#[command(
    visible_alias = "memory",
    after_help = "Examples:\n  \
    mainstay free\n  \
    mainstay free -v                                          all values of /proc/meminfo\n  \
    mainstay free -o json | jq '.[0].meminfo.memavailable'    # KiB, as the kernel prints it"
)]
pub struct Free {
    /// Show all values of /proc/meminfo, with their names in JSON
    #[arg(short, long)]
    verbose: bool,
}

impl Free {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let answers = client
            .call_all((), |mut machine, request| async move {
                machine.memory(request).await
            })
            .await?;
        match global.output {
            Format::Table if self.verbose => client.print_table(verbose_table(&answers))?,
            Format::Table => client.print_table(table(&answers))?,
            format => output::print_answers(format, "os.Memory", &answers)?,
        }
        client.finish()
    }
}

fn verbose_table(answers: &[Answer<Memory>]) -> Table {
    let mut table = Table::new(&["NODE", "NAME", "VALUE"]);
    for Answer { node, message } in answers {
        let info = to_json("os.MemInfo", &message.meminfo.unwrap_or_default());
        for (name, value) in info.as_object().into_iter().flatten() {
            let number = value.as_u64().unwrap_or_default();
            let is_count = name.starts_with("hugepages") && name != "hugepagesize";
            let value = match is_count {
                true => number.to_string(),
                false => format!("{number} KiB"),
            };
            table.row(vec![node.clone(), name.clone(), value]);
        }
    }
    table
}

fn table(answers: &[Answer<Memory>]) -> Table {
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
    table
}
