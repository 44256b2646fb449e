//! Where a copy goes. Files are written by a thread of their own, so that neither a slow disk nor a
//! reader who does not read keeps the command from being interrupted.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf, Bytes};
use flate2::read::GzDecoder;
use tokio::sync::{mpsc, oneshot};

use crate::failure::{Exit, Failure, Outcome};

/// How far the network may run ahead of the disk.
const AHEAD: usize = 4;

pub(super) struct Target {
    path: PathBuf,
    /// Once there is something to write: a refused call leaves nothing behind.
    opened: Option<Opened>,
}

struct Opened {
    place: Place,
    /// Gone when all has been handed over.
    pieces: Option<mpsc::Sender<Bytes>>,
    /// What is handed over is not wanted any more.
    abandoned: Arc<AtomicBool>,
    /// Gone when it was told.
    written: Option<oneshot::Receiver<io::Result<()>>>,
}

/// What there is on disk until the copy is done.
#[derive(Debug, Clone)]
enum Place {
    /// A stream, a device: nothing to be made or removed.
    Elsewhere,
    /// Becomes `archive` at the end.
    Archive { partial: PathBuf, archive: PathBuf },
    /// `made` is the topmost directory that was not there before.
    Directory { made: Option<PathBuf> },
}

impl Target {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, opened: None }
    }

    /// `false` when writing has ended early; why, `finish` tells.
    pub(super) async fn write(&mut self, bytes: Bytes) -> Outcome<bool> {
        let opened = match &mut self.opened {
            Some(opened) => opened,
            none => none.insert(Opened::open(&self.path)?),
        };
        match &opened.pieces {
            Some(pieces) => Ok(pieces.send(bytes).await.is_ok()),
            None => Ok(false),
        }
    }

    /// Waits until all is written.
    pub(super) async fn finish(&mut self) -> Outcome {
        let Some(opened) = &mut self.opened else {
            return Ok(());
        };
        opened.pieces = None;
        let Some(writing) = &mut opened.written else {
            return Ok(());
        };
        let written = writing.await;
        opened.written = None;
        match (&opened.place, written) {
            (_, Err(_)) => return Err(Failure::new(Exit::Failed, "writing failed")),
            (Place::Directory { .. }, Ok(Err(error))) => {
                let message = format!("cannot unpack: {error}");
                return Err(Failure::new(Exit::Failed, message));
            }
            // Silent when it was the reader of our output who left.
            (_, Ok(Err(error))) => return Err(error.into()),
            (Place::Archive { partial, archive }, Ok(Ok(()))) => {
                fs::rename(partial, archive).map_err(|error| cannot_write(archive, &error))?;
            }
            (_, Ok(Ok(()))) => {}
        }
        self.opened = None;
        Ok(())
    }

    /// Removes what a copy has made that did not come to its end. Tells what remains.
    pub(super) async fn abandon(&mut self) -> Option<String> {
        let opened = self.opened.take()?;
        opened.abandoned.store(true, Ordering::Relaxed);
        drop(opened.pieces);
        if matches!(opened.place, Place::Elsewhere) {
            // Its reader may never read on.
            return None;
        }
        if let Some(writing) = opened.written {
            let _ = writing.await;
        }
        let path = self.path.clone();
        let (tell, removed) = oneshot::channel();
        std::thread::spawn(move || tell.send(opened.place.remove(&path)));
        removed.await.ok().flatten()
    }
}

impl Opened {
    fn open(path: &Path) -> Outcome<Self> {
        let (send, receive) = mpsc::channel(AHEAD);
        let (tell, written) = oneshot::channel();
        let abandoned = Arc::new(AtomicBool::new(false));
        let pieces = Pieces {
            receive,
            present: Bytes::new(),
            abandoned: Arc::clone(&abandoned),
        };
        let name = path.to_string_lossy();
        let place = if name == "-" {
            std::thread::spawn(move || tell.send(pour(pieces, io::stdout())));
            Place::Elsewhere
        } else if name.ends_with(".tar.gz") || name.ends_with(".tgz") {
            let (place, file) = Place::archive(path).map_err(|error| cannot_write(path, &error))?;
            std::thread::spawn(move || tell.send(pour(pieces, file)));
            place
        } else {
            let place = Place::directory(path).map_err(|error| cannot_write(path, &error))?;
            let into = path.to_owned();
            // The archive library lets nothing out of the directory.
            std::thread::spawn(move || {
                tell.send(tar::Archive::new(GzDecoder::new(pieces)).unpack(into))
            });
            place
        };
        Ok(Self {
            place,
            pieces: Some(send),
            abandoned,
            written: Some(written),
        })
    }
}

impl Place {
    /// Beside the archive, so that it only has to be renamed.
    fn archive(path: &Path) -> io::Result<(Self, File)> {
        let archive = match fs::metadata(path) {
            Ok(about) if !about.is_file() => return Ok((Self::Elsewhere, File::create(path)?)),
            // What a link leads to is replaced, not the link.
            Ok(_) => fs::canonicalize(path)?,
            Err(_) => path.to_owned(),
        };
        let name = archive.file_name().unwrap_or_default().to_string_lossy();
        let now = jiff::Timestamp::now().as_nanosecond();
        let partial = archive.with_file_name(format!(".{name}.{now:x}"));
        let file = File::create_new(&partial)?;
        Ok((Self::Archive { partial, archive }, file))
    }

    fn directory(path: &Path) -> io::Result<Self> {
        let made = path
            .ancestors()
            .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
            .last()
            .map(Path::to_owned);
        fs::create_dir_all(path)?;
        Ok(Self::Directory { made })
    }

    /// What remains, if anything does.
    fn remove(&self, path: &Path) -> Option<String> {
        let (made, removed) = match self {
            Self::Elsewhere => return None,
            Self::Archive { partial, .. } => (partial, fs::remove_file(partial)),
            Self::Directory { made: Some(made) } => (made, fs::remove_dir_all(made)),
            Self::Directory { made: None } => {
                let path = path.display();
                return Some(format!("what was copied before is still in {path}"));
            }
        };
        let error = removed.err()?;
        Some(format!("{} cannot be removed: {error}", made.display()))
    }
}

fn pour(mut pieces: Pieces, mut out: impl Write) -> io::Result<()> {
    while let Some(piece) = pieces.next()? {
        out.write_all(&piece)?;
    }
    out.flush()
}

/// The pieces of the stream as one file.
struct Pieces {
    receive: mpsc::Receiver<Bytes>,
    present: Bytes,
    abandoned: Arc<AtomicBool>,
}

impl Pieces {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let piece = self.receive.blocking_recv();
        self.check()?;
        Ok(piece)
    }

    fn check(&self) -> io::Result<()> {
        if self.abandoned.load(Ordering::Relaxed) {
            return Err(io::Error::other("the copy was abandoned"));
        }
        Ok(())
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Not only where a piece ends: a small one can unpack into gigabytes.
        self.check()?;
        if self.present.is_empty() {
            match self.next()? {
                Some(next) => self.present = next,
                None => return Ok(0),
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
