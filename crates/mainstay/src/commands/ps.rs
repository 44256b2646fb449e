//! `mainstay ps`

use std::io::IsTerminal;
use std::time::Duration;

use clap::{Args, ValueEnum};
use mainstay_api::os::{Process, ProcessInfo};

use super::connect;
use crate::cli::{Format, Global};
use crate::connection::Connection;
use crate::failure::{Exit, Outcome};
use crate::output;
use mainstay_client::Answer;
use mainstay_client::format::{Table, cpu_time, parse_duration, size};

/// List processes
#[derive(Debug, Args)]
#[command(
    visible_alias = "processes",
    after_help = "Examples:\n  \
    mainstay ps --sort memory\n  \
    mainstay ps --filter nginx\n  \
    mainstay ps --watch --sort cpu\n  \
    mainstay ps -o json | jq '.[].processes[] | select(.state == \"Z\")'"
)]
pub struct Ps {
    /// Sort order
    #[arg(long, value_enum, default_value_t = Sort::Pid)]
    sort: Sort,

    /// Show only processes with TEXT in their name or arguments
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    filter: Option<String>,

    /// Refresh every TIME [default: 2s]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "2s", value_parser = parse_duration)]
    watch: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// Process id (PID)
    Pid,
    /// CPU time
    Cpu,
    /// Resident memory (RSS)
    Memory,
    /// Command name
    Name,
}

impl Ps {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let Some(every) = self.watch else {
            return self.show(&client, global).await;
        };
        let mut ticks = tokio::time::interval(every.max(Duration::from_millis(100)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if global.output == Format::Table && std::io::stdout().is_terminal() {
                // Cursor home, then clear below: no flicker.
                output::print_raw("\x1b[H\x1b[J")?;
            }
            match self.show(&client, global).await {
                // A node that does not answer now may answer in the next round.
                Err(failure) if failure.exit == Exit::Partial => {}
                shown => shown?,
            }
        }
    }

    async fn show(&self, client: &Connection, global: &Global) -> Outcome {
        let mut answers = client
            .call_all((), |mut machine, request| async move {
                machine.processes(request).await
            })
            .await?;
        for answer in &mut answers {
            self.arrange(&mut answer.message.processes);
        }
        match global.output {
            Format::Table => client.print_table(match output::terminal_width() {
                Some(width) => table(&answers).cut_to(width),
                None => table(&answers),
            })?,
            format => output::print_answers(format, "os.Process", &answers)?,
        }
        client.finish()
    }

    fn arrange(&self, processes: &mut Vec<ProcessInfo>) {
        if let Some(text) = &self.filter {
            processes.retain(|process| {
                process.command.contains(text.as_str()) || process.args.contains(text.as_str())
            });
        }
        match self.sort {
            Sort::Pid => processes.sort_by_key(|process| process.pid),
            Sort::Cpu => processes.sort_by(|a, b| b.cpu_time.total_cmp(&a.cpu_time)),
            Sort::Memory => {
                processes.sort_by_key(|process| std::cmp::Reverse(process.resident_memory))
            }
            Sort::Name => processes.sort_by(|a, b| a.command.cmp(&b.command)),
        }
    }
}

fn table(answers: &[Answer<Process>]) -> Table {
    let header = [
        "NODE", "PID", "PPID", "USER", "S", "THREADS", "%CPU", "TIME", "VIRTUAL", "RESIDENT",
        "COMMAND",
    ];
    let mut table = Table::new(&header);
    for answer in answers {
        for process in &answer.message.processes {
            let shown = if process.args.is_empty() {
                format!("[{}]", process.command)
            } else {
                process.args.clone()
            };
            table.row(vec![
                answer.node.clone(),
                process.pid.to_string(),
                process.ppid.to_string(),
                user(process),
                process.state.clone(),
                process.threads.to_string(),
                cpu_percent(process),
                cpu_time(process.cpu_time),
                size(process.virtual_memory),
                size(process.resident_memory),
                shown,
            ]);
        }
    }
    table
}

/// Returns the name of the user, else the UID.
fn user(process: &ProcessInfo) -> String {
    match (process.user.as_str(), process.uid) {
        ("", Some(uid)) => uid.to_string(),
        ("", None) => "-".to_owned(),
        (name, _) => name.to_owned(),
    }
}

/// Returns the CPU time in percent of the time since the start, as ps(1) does.
fn cpu_percent(process: &ProcessInfo) -> String {
    // Nodes of earlier versions do not send it.
    if process.elapsed_time <= 0.0 {
        return "-".to_owned();
    }
    format!("{:.1}", 100.0 * process.cpu_time / process.elapsed_time)
}
