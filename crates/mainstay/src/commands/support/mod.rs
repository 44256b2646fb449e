//! `mainstay support`

mod archive;
mod collect;
mod errors;
mod file_name;
mod redact;
mod tail;

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mainstay_client::format::counted;

use super::connect;
use super::cp::Interrupts;
use crate::cli::{Format, Global};
use crate::connection::Connection;
use crate::failure::{Exit, Failure, Outcome, print_error, warn};
use archive::Archive;
use collect::Collector;

/// Collect logs, events, readings and the configuration of nodes in one archive
///
/// Writes a tar.gz with a directory per node. It holds no private key: the configuration comes
/// without secrets, and PEM private keys in logs are removed. Other contents of logs, process
/// arguments and addresses are not filtered; look through the archive before you pass it on. A
/// reading that fails is listed in errors.txt and the exit code is 1, or 8 if a node failed
/// completely. An interrupted command leaves no archive.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay support\n  \
    mainstay support -n n1,n2,n3 fleet.tar.gz\n  \
    mainstay support --tail 10000 && tar tzf support-*.tar.gz")]
pub struct Support {
    /// Archive to write [default: support-TIME.tar.gz]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Lines of each log, and events
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u16).range(1..))]
    tail: u16,
}

impl Support {
    pub async fn run(self, global: &Global) -> Outcome {
        if global.output != Format::Table {
            return Err(Failure::usage(
                "support writes an archive; -o applies to commands that print",
            ));
        }
        let mut interrupts = Interrupts::listen()?;
        let client = tokio::select! {
            client = connect(global) => client?,
            interrupt = interrupts.next() => return Err(interrupt),
        };
        let name = jiff::Timestamp::now().strftime("support-%Y%m%dT%H%M%SZ");
        let name = name.to_string();
        let path = self
            .file
            .unwrap_or_else(|| PathBuf::from(format!("{name}.tar.gz")));
        let mut archive =
            Archive::create(&path, &name).map_err(|error| Failure::file("write", &path, &error))?;
        let progress = progress();
        let written = tokio::select! {
            written = write(&client, &mut archive, self.tail.into(), &progress) => written,
            interrupt = interrupts.next() => Err(interrupt),
        };
        progress.finish_and_clear();
        let Err(failure) = written else {
            return written;
        };
        if archive.is_complete() {
            return Err(failure);
        }
        // A second signal aborts the cleanup too.
        tokio::select! {
            removed = archive.abandon() => if let Err(error) = removed {
                warn(&format!("cannot remove the incomplete archive: {error}"));
            },
            interrupt = interrupts.next() => return Err(interrupt),
        }
        Err(failure)
    }
}

async fn write(
    client: &Connection,
    archive: &mut Archive,
    tail: i32,
    progress: &ProgressBar,
) -> Outcome {
    let mut collector = Collector::new(client, archive, tail, progress);
    let collected = collector.run().await;
    let errors = collector.into_errors();
    collected?;
    if !errors.answered() {
        // Nothing was read: there is nothing to send to anybody.
        return Err(errors.into_first_failure());
    }
    archive
        .add("errors.txt", errors.to_text().into_bytes())
        .await?;
    archive.finish().await?;
    let path = archive.path().display();
    anstream::eprintln!("wrote {path}");
    let failed = errors.failed_nodes();
    if !failed.is_empty() {
        for node in &failed {
            print_error(&format!(
                "node {node} did not answer; errors.txt has the reason"
            ));
        }
        return Err(Failure::printed(Exit::Partial));
    }
    match errors.count() {
        0 => Ok(()),
        count => Err(Failure::new(
            Exit::Failed,
            format!(
                "{path} is incomplete: {} failed; errors.txt in it has the errors",
                counted(count as u64, "reading")
            ),
        )),
    }
}

fn progress() -> ProgressBar {
    let progress = ProgressBar::new(0);
    if io::stderr().is_terminal() {
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
            progress.set_style(style);
        }
    } else {
        progress.set_draw_target(ProgressDrawTarget::hidden());
    }
    progress
}
