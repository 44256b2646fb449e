//! `mainstay cp`

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use bytes::{Buf, Bytes};
use clap::Args;
use flate2::read::GzDecoder;
use futures_util::StreamExt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mainstay_api::machine::CopyRequest;

use super::connect;
use crate::cli::Global;
use crate::failure::{Exit, Failure, Outcome, warn};

/// Copy a file or a directory out of the node
///
/// What the node cannot read is left out and told; the exit code is then 1.
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
        let mut machine = client.machine();
        let request = client.request(CopyRequest {
            root_path: self.source,
        });
        let mut stream = client.within(machine.copy(request)).await?.into_inner();
        let progress = progress();
        let mut sink = None;
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
            // Made only now, so that a refused call leaves nothing behind.
            let sink = match &mut sink {
                Some(sink) => sink,
                none => none.insert(Sink::open(&self.target)?),
            };
            if !sink.write(data.bytes)? {
                break;
            }
        }
        if let Some(sink) = sink {
            sink.finish()?;
        }
        progress.finish_and_clear();
        if left_out {
            return Err(Failure::new(Exit::Failed, "not everything could be copied"));
        }
        Ok(())
    }
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

/// Where the archive goes.
enum Sink {
    Archive(Box<dyn Write>),
    Directory {
        pieces: SyncSender<Bytes>,
        unpacking: JoinHandle<io::Result<()>>,
    },
}

impl Sink {
    fn open(target: &Path) -> Outcome<Self> {
        let name = target.to_string_lossy();
        if name == "-" {
            return Ok(Self::Archive(Box::new(io::stdout())));
        }
        if name.ends_with(".tar.gz") || name.ends_with(".tgz") {
            let file = File::create(target).map_err(|error| cannot_write(target, &error))?;
            return Ok(Self::Archive(Box::new(file)));
        }
        std::fs::create_dir_all(target).map_err(|error| cannot_write(target, &error))?;
        let (pieces, receive) = sync_channel(4);
        let target = target.to_owned();
        let unpacking = std::thread::spawn(move || {
            let pieces = Pieces {
                receive,
                present: Bytes::new(),
            };
            // The archive library lets nothing out of the directory.
            tar::Archive::new(GzDecoder::new(pieces)).unpack(target)
        });
        Ok(Self::Directory { pieces, unpacking })
    }

    /// `false` when unpacking has ended early; why, `finish` tells.
    fn write(&mut self, bytes: Bytes) -> Outcome<bool> {
        match self {
            Self::Archive(out) => {
                out.write_all(&bytes)?;
                Ok(true)
            }
            Self::Directory { pieces, .. } => Ok(pieces.send(bytes).is_ok()),
        }
    }

    fn finish(self) -> Outcome {
        match self {
            Self::Archive(mut out) => Ok(out.flush()?),
            Self::Directory { pieces, unpacking } => {
                drop(pieces);
                match unpacking.join() {
                    Ok(Ok(())) => Ok(()),
                    Ok(Err(error)) => Err(Failure::new(
                        Exit::Failed,
                        format!("cannot unpack: {error}"),
                    )),
                    Err(_) => Err(Failure::new(Exit::Failed, "unpacking failed")),
                }
            }
        }
    }
}

/// The pieces of the stream as one file.
struct Pieces {
    receive: Receiver<Bytes>,
    present: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.present.is_empty() {
            match self.receive.recv() {
                Ok(next) => self.present = next,
                Err(_) => return Ok(0),
            }
        }
        let length = self.present.len().min(buffer.len());
        self.present.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("cannot write {}: {error}", path.display()),
    )
}
