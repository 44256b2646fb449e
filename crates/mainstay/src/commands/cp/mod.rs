//! `mainstay cp`

mod interrupts;
mod target;
mod targets;

use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use futures_util::StreamExt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mainstay_api::common::Data;
use mainstay_api::machine::{CopyRequest, ListRequest};
use mainstay_client::format::printable;
use tonic::Streaming;

use super::connect;
use super::streams::node_path;
use crate::cli::Global;
use crate::connection::Connection;
use crate::failure::{Exit, Failure, Outcome, warn};
pub(super) use interrupts::Interrupts;
use targets::Targets;

/// Copy a file or a directory from the node
///
/// Copies modes, modification times, extended attributes, ACLs, hard links, holes, FIFOs and
/// devices. Unpacked by root, files keep their owners and set-user-ID bits too; a warning names what
/// could not be restored.
///
/// A file that the node cannot read is skipped with a warning, and the exit code is 1; likewise an
/// entry whose path would lead out of the target. An interrupted copy removes the archive or the
/// directory it created; files copied to an existing directory stay.
#[derive(Debug, Args)]
#[command(
    visible_alias = "copy",
    after_help = "Examples:\n  \
    mainstay cp /etc                          to ./etc\n  \
    mainstay cp /etc ./etc-of-node1           to a directory\n  \
    mainstay cp /var/log logs.tar.gz          to an archive\n  \
    mainstay cp /var/log - | tar tz           to stdout\n  \
    mainstay cp -n n1,n2 /etc ./etc           to ./etc/n1 and ./etc/n2\n  \
    mainstay cp -n n1,n2 /etc etc.tar.gz      to etc-n1.tar.gz and etc-n2.tar.gz"
)]
pub struct Cp {
    /// Absolute path of a file or directory
    #[arg(value_parser = node_path())]
    source: String,

    /// Directory to unpack to, archive (*.tar.gz, *.tgz), or - for an archive on stdout [default: the
    /// last component of SOURCE, in the current directory]
    target: Option<PathBuf>,
}

impl Cp {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let target = match self.target {
            Some(target) => target,
            None => default_target(&client, &self.source).await?,
        };
        let mut targets = Targets::new(&client, target)?;
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
        // A second signal aborts the cleanup too.
        let remaining = tokio::select! {
            remaining = targets.abandon() => remaining,
            interrupt = interrupts.next() => return Err(interrupt),
        };
        for message in remaining {
            warn(&message);
        }
        Err(failure)
    }
}

/// Returns the target for a source: its own name for a directory, or for several nodes; the current
/// directory for a file.
async fn default_target(client: &Connection, source: &str) -> Outcome<PathBuf> {
    let path = mainstay_paths::from_wire(source);
    let path = Path::new(OsStr::from_bytes(&path));
    let Some(name) = path.file_name() else {
        return Err(Failure::usage(
            "the source has no name; name a directory or an archive to copy to",
        ));
    };
    // A slash at the end: a directory also where the name is that of an archive.
    let target = Path::new(".").join(name).join("");
    if client.has_many_nodes() {
        return Ok(target);
    }
    let request = client.request(ListRequest {
        root: source.to_owned(),
        ..ListRequest::default()
    });
    let mut machine = client.machine();
    let mut stream = client.within(machine.list(request)).await?.into_inner();
    let root = client.within(stream.message()).await?;
    match root {
        Some(root) if root.relative_name != "." && root.error.is_empty() => Ok(PathBuf::from(".")),
        _ => Ok(target),
    }
}

/// Copies the stream to its end; fails at the end if files were skipped.
async fn copy(
    client: &Connection,
    stream: &mut Streaming<Data>,
    targets: &mut Targets,
    progress: &ProgressBar,
) -> Outcome {
    let mut skipped = false;
    while let Some(data) = stream.next().await {
        let data = data?;
        let node = client.node_name(data.metadata.as_ref());
        if let Some(metadata) = data.metadata.as_ref().filter(|m| !m.error.is_empty()) {
            if metadata.status.is_some() {
                progress.suspend(|| client.report(Some(metadata)));
                targets.abandon_node(&node).await;
                continue;
            }
            let prefix = client.line_prefix(&node);
            progress.suspend(|| warn(&format!("{prefix}skipped: {}", printable(&metadata.error))));
            skipped = true;
        }
        if data.bytes.is_empty() {
            continue;
        }
        progress.inc(data.bytes.len() as u64);
        if !targets.write(&node, data.bytes).await? {
            break;
        }
    }
    for (node, report) in targets.finish().await? {
        let prefix = client.line_prefix(&node);
        for line in report.missing() {
            warn(&format!("{prefix}not unpacked: {}", printable(&line)));
        }
        if let Some(what) = report.not_restored() {
            warn(&format!("{prefix}not restored: {}", printable(&what)));
        }
        skipped |= !report.is_complete();
    }
    client.finish()?;
    if skipped {
        return Err(Failure::new(
            Exit::Failed,
            "copy is incomplete; the warnings above name the skipped files",
        ));
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
