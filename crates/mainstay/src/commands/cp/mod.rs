//! `mainstay cp`

mod interrupts;
mod target;

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::Args;
use futures_util::StreamExt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mainstay_api::common::Data;
use mainstay_api::machine::CopyRequest;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use tonic::Streaming;

use super::{connect, within};
use crate::cli::Global;
use crate::failure::{Exit, Failure, Outcome, warn};
use interrupts::Interrupts;
use target::Target;

/// Copy a file or a directory out of the node
///
/// What the node cannot read is left out and told; the exit code is then 1. A copy that does not
/// come to its end, by Ctrl-C or otherwise, leaves no archive and no directory that it made; in a
/// directory that was there before, what has been copied stays.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay cp /etc ./etc-of-node1           into a directory\n  \
    mainstay cp /var/log logs.tar.gz          as an archive\n  \
    mainstay cp /var/log - | tar tz           to another program")]
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
        let mut service = MachineServiceClient::new(client.channel());
        let request = client.request(CopyRequest {
            root_path: self.source,
        });
        let mut stream = within(global, service.copy(request)).await?.into_inner();
        let mut interrupts = Interrupts::listen()?;
        let mut target = Target::new(self.target);
        let progress = progress();
        let copied = tokio::select! {
            copied = copy(&mut stream, &mut target, &progress) => copied,
            interrupt = interrupts.next() => Err(interrupt),
        };
        progress.finish_and_clear();
        let Err(failure) = copied else {
            return copied;
        };
        // Whoever asks a second time does not want to wait for the cleaning up either.
        let left = tokio::select! {
            left = target.abandon() => left,
            interrupt = interrupts.next() => return Err(interrupt),
        };
        if let Some(left) = left {
            warn(&left);
        }
        Err(failure)
    }
}

/// Copies to the end, and fails at the end when something was left out.
async fn copy(
    stream: &mut Streaming<Data>,
    target: &mut Target,
    progress: &ProgressBar,
) -> Outcome {
    let mut left_out = false;
    while let Some(data) = stream.next().await {
        let data = data?;
        if let Some(metadata) = data.metadata.as_ref().filter(|m| !m.error.is_empty()) {
            progress.suspend(|| warn(&format!("left out: {}", metadata.error)));
            left_out = true;
        }
        if data.bytes.is_empty() {
            continue;
        }
        progress.inc(data.bytes.len() as u64);
        if !target.write(data.bytes).await? {
            break;
        }
    }
    target.finish().await?;
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
