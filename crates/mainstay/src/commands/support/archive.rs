//! The archive. A thread of its own writes it, so that a slow disk does not delay the reaction to
//! a signal.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use mainstay_archive::{Content, Member, Time, Writer};
use tokio::sync::{mpsc, oneshot};

use super::redact::redact;
use crate::failure::{Exit, Failure, Outcome};

/// Only the user who collected it reads it.
const FILE_MODE: u32 = 0o600;
/// Files collected and not yet written.
const MAX_QUEUED: usize = 4;

pub(super) struct Archive {
    path: PathBuf,
    partial: PathBuf,
    entries: Option<mpsc::Sender<(String, Vec<u8>)>>,
    written: Option<oneshot::Receiver<io::Result<()>>>,
    complete: bool,
}

impl Archive {
    /// Starts an archive, beside its path until it is complete. Every file in it is below the
    /// directory `top`.
    pub(super) fn create(path: &Path, top: &str) -> io::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.is_empty() || path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let now = jiff::Timestamp::now();
        let unique = now.as_nanosecond();
        let partial = path.with_file_name(format!(".{name}.{unique:x}"));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(&partial)?;
        let (send, receive) = mpsc::channel(MAX_QUEUED);
        let (done, written) = oneshot::channel();
        let (top, time) = (top.to_owned(), now.as_second());
        std::thread::spawn(move || done.send(write_entries(file, receive, &top, time)));
        Ok(Self {
            path: path.to_owned(),
            partial,
            entries: Some(send),
            written: Some(written),
            complete: false,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Adds a file, without private keys.
    pub(super) async fn add(&mut self, name: &str, content: Vec<u8>) -> Outcome {
        if let Some(entries) = &self.entries
            && entries
                .send((name.to_owned(), redact(content)))
                .await
                .is_ok()
        {
            return Ok(());
        }
        // The writer has ended early: its result says why.
        self.close().await
    }

    /// Writes the rest and gives the archive its name.
    pub(super) async fn finish(&mut self) -> Outcome {
        self.close().await?;
        fs::rename(&self.partial, &self.path)
            .map_err(|error| Failure::file("write", &self.path, &error))?;
        self.complete = true;
        Ok(())
    }

    async fn close(&mut self) -> Outcome {
        self.entries = None;
        let Some(written) = self.written.take() else {
            return Ok(());
        };
        match written.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Failure::file("write", &self.path, &error)),
            Err(_) => Err(Failure::new(Exit::Failed, "the writer thread stopped")),
        }
    }

    /// Removes what was written so far.
    pub(super) async fn abandon(&mut self) -> io::Result<()> {
        self.entries = None;
        if let Some(written) = self.written.take() {
            // Whether it was written does not matter any more.
            let _ = written.await;
        }
        fs::remove_file(&self.partial)
    }
}

fn write_entries(
    file: File,
    mut entries: mpsc::Receiver<(String, Vec<u8>)>,
    top: &str,
    time: i64,
) -> io::Result<()> {
    let mut archive = Writer::new(GzEncoder::new(file, Compression::default()));
    while let Some((name, content)) = entries.blocking_recv() {
        let member = Member {
            name: format!("{top}/{name}").into_bytes(),
            content: Content::Regular {
                size: content.len() as u64,
            },
            mode: FILE_MODE,
            uid: 0,
            gid: 0,
            modified: Time {
                seconds: time,
                nanoseconds: 0,
            },
            xattrs: Vec::new(),
        };
        archive.append(&member, content.as_slice())?;
    }
    archive.finish()?.finish()?.sync_all()
}
