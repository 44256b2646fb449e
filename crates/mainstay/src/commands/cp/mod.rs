//! `mainstay cp`

mod interrupts;
mod target;
mod targets;

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::Args;
use futures_util::StreamExt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mainstay_api::common::Data;
use mainstay_api::machine::CopyRequest;
use tonic::Streaming;

use super::connect;
use crate::cli::Global;
use crate::connection::Connection;
use crate::failure::{Exit, Failure, Outcome, warn};
use interrupts::Interrupts;
use targets::Targets;

/// Copy a file or a directory out of the node
///
/// What the node cannot read is left out and told; the exit code is then 1. A copy that does not
/// come to its end, by Ctrl-C or otherwise, leaves no archive and no directory that it made; in a
/// directory that was there before, what has been copied stays.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay cp /etc ./etc-of-node1           into a directory\n  \
    mainstay cp /var/log logs.tar.gz          as an archive\n  \
    mainstay cp /var/log - | tar tz           to another program\n  \
    mainstay cp -n n1,n2 /etc ./etc           into ./etc/n1 and ./etc/n2\n  \
    mainstay cp -n n1,n2 /etc etc.tar.gz      as etc-n1.tar.gz and etc-n2.tar.gz")]
pub struct Cp {
    /// What to copy, by its absolute path
    source: String,

    /// A directory, an archive (*.tar.gz, *.tgz), or - for an archive on stdout
    #[arg(default_value = ".")]
    target: PathBuf,
}

impl Cp {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let mut targets = Targets::new(&client, self.target)?;
        let mut machine = client.machine();
        let request = client.request(CopyRequest {
            root_path: self.source,
        });
        let mut stream = client.within(machine.copy(request)).await?.into_inner();
        let mut interrupts = Interrupts::listen()?;
        let progress = progress();
        let copied = tokio::select! {
            copied = copy(&client, &mut stream, &mut targets, &progress) => copied,
            interrupt = interrupts.next() => Err(interrupt),
        };
        progress.finish_and_clear();
        let Err(failure) = copied else {
            return copied;
        };
        // Whoever asks a second time does not want to wait for the cleaning up either.
        let left = tokio::select! {
            left = targets.abandon() => left,
            interrupt = interrupts.next() => return Err(interrupt),
        };
        for left in left {
            warn(&left);
        }
        Err(failure)
    }
}

/// Copies to the end, and fails at the end when something was left out.
async fn copy(
    client: &Connection,
    stream: &mut Streaming<Data>,
    targets: &mut Targets,
    progress: &ProgressBar,
) -> Outcome {
    let mut left_out = false;
    while let Some(data) = stream.next().await {
        let data = data?;
        let node = client.node_name(data.metadata.as_ref());
        if let Some(metadata) = data.metadata.as_ref().filter(|m| !m.error.is_empty()) {
            if metadata.status.is_some() {
                progress.suspend(|| client.report(Some(metadata)));
                targets.give_up(&node).await;
                continue;
            }
            let before = client.line_prefix(&node);
            progress.suspend(|| warn(&format!("{before}left out: {}", metadata.error)));
            left_out = true;
        }
        if data.bytes.is_empty() {
            continue;
        }
        progress.inc(data.bytes.len() as u64);
        if !targets.write(&node, data.bytes).await? {
            break;
        }
    }
    targets.finish().await?;
    client.finish()?;
    if left_out {
        return Err(Failure::new(Exit::Failed, "not everything could be copied"));
    }
    Ok(())
}

fn progress() -> ProgressBar {
    let progress = ProgressBar::no_length();
    if io::stderr().is_terminal() {
        if let Ok(style) = ProgressStyle::with_template("{spinner} {bytes} copied, {bytes_per_sec}")
        {
            progress.set_style(style);
        }
    } else {
        progress.set_draw_target(ProgressDrawTarget::hidden());
    }
    progress
}
