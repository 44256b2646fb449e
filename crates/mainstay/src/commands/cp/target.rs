//! The target of a copy. A thread of its own writes, so that neither a slow disk nor a blocked pipe
//! delays the reaction to a signal.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf, Bytes};
use flate2::GzHeader;
use flate2::read::GzDecoder;
use mainstay_archive::{Report, root_of_field, unpack};
use tokio::sync::{mpsc, oneshot};

use crate::failure::{Exit, Failure, Outcome};

/// Chunks received from the network and not yet written.
const MAX_QUEUED_CHUNKS: usize = 4;

pub(super) struct Target {
    path: PathBuf,
    /// Opened by the first write, so that a refused call creates nothing.
    writer: Option<Writer>,
}

struct Writer {
    files: PartialFiles,
    /// `None` after the last chunk.
    chunks: Option<mpsc::Sender<Bytes>>,
    /// Set to make the writer drop all further chunks.
    abandoned: Arc<AtomicBool>,
    /// The result of writing; `None` once it was received.
    written: Option<oneshot::Receiver<io::Result<Option<Report>>>>,
}

/// The files of an incomplete copy.
#[derive(Debug, Clone)]
enum PartialFiles {
    /// A pipe or a device: nothing to create or remove.
    Stream,
    /// Renamed to `archive` at the end.
    Archive { partial: PathBuf, archive: PathBuf },
    /// `created` is the topmost directory that did not exist before.
    Directory { created: Option<PathBuf> },
}

impl Target {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, writer: None }
    }

    /// Writes bytes. Returns `false` if writing has ended; `finish` returns the reason.
    pub(super) async fn write(&mut self, bytes: Bytes) -> Outcome<bool> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(Writer::start(&self.path)?),
        };
        match &writer.chunks {
            Some(chunks) => Ok(chunks.send(bytes).await.is_ok()),
            None => Ok(false),
        }
    }

    /// Waits until everything is written. Returns the report of what was unpacked.
    pub(super) async fn finish(&mut self) -> Outcome<Option<Report>> {
        let Some(writer) = &mut self.writer else {
            return Ok(None);
        };
        writer.chunks = None;
        let Some(writing) = &mut writer.written else {
            return Ok(None);
        };
        let written = writing.await;
        writer.written = None;
        let report = match (&writer.files, written) {
            (_, Err(_)) => return Err(Failure::new(Exit::Failed, "the writer thread stopped")),
            (PartialFiles::Directory { .. }, Ok(Err(error))) => {
                let message = format!("cannot unpack to {}: {error}", self.path.display());
                return Err(Failure::new(Exit::Failed, message));
            }
            (PartialFiles::Stream, Ok(Err(error))) => return Err(Failure::stdout(error)),
            (_, Ok(Err(error))) => return Err(error.into()),
            (PartialFiles::Archive { partial, archive }, Ok(Ok(_))) => {
                fs::rename(partial, archive)
                    .map_err(|error| Failure::file("write", archive, &error))?;
                None
            }
            (_, Ok(Ok(report))) => report,
        };
        self.writer = None;
        Ok(report)
    }

    /// Removes the files of an incomplete copy. Returns a message about files that remain.
    pub(super) async fn abandon(&mut self) -> Option<String> {
        let writer = self.writer.take()?;
        writer.abandoned.store(true, Ordering::Relaxed);
        drop(writer.chunks);
        if matches!(writer.files, PartialFiles::Stream) {
            // The reader of a pipe may never read on.
            return None;
        }
        if let Some(writing) = writer.written {
            let _ = writing.await;
        }
        let path = self.path.clone();
        let (done, removed) = oneshot::channel();
        std::thread::spawn(move || done.send(writer.files.remove(&path)));
        removed.await.ok().flatten()
    }
}

impl Writer {
    fn start(path: &Path) -> Outcome<Self> {
        let (send, receive) = mpsc::channel(MAX_QUEUED_CHUNKS);
        let (done, written) = oneshot::channel();
        let abandoned = Arc::new(AtomicBool::new(false));
        let chunks = Chunks {
            receive,
            current: Bytes::new(),
            abandoned: Arc::clone(&abandoned),
        };
        let name = path.to_string_lossy();
        let files = if name == "-" {
            std::thread::spawn(move || {
                done.send(write_chunks(chunks, io::stdout()).map(|()| None))
            });
            PartialFiles::Stream
        } else if name.ends_with(".tar.gz") || name.ends_with(".tgz") {
            let (files, file) = PartialFiles::archive(path)
                .map_err(|error| Failure::file("write", path, &error))?;
            std::thread::spawn(move || done.send(write_chunks(chunks, file).map(|()| None)));
            files
        } else {
            let files = PartialFiles::directory(path)
                .map_err(|error| Failure::file("write", path, &error))?;
            let into = path.to_owned();
            let restore_root = matches!(files, PartialFiles::Directory { created: Some(_) });
            std::thread::spawn(move || {
                done.send(unpack_chunks(chunks, &into, restore_root).map(Some))
            });
            files
        };
        Ok(Self {
            files,
            chunks: Some(send),
            abandoned,
            written: Some(written),
        })
    }
}

impl PartialFiles {
    /// Creates a temporary file in the directory of the archive, to be renamed.
    fn archive(path: &Path) -> io::Result<(Self, File)> {
        let archive = match fs::metadata(path) {
            Ok(about) if !about.is_file() => return Ok((Self::Stream, File::create(path)?)),
            // Replaces the target of a symbolic link, not the link.
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
        let created = path
            .ancestors()
            .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
            .last()
            .map(Path::to_owned);
        fs::create_dir_all(path)?;
        Ok(Self::Directory { created })
    }

    /// Removes the files. Returns a message about files that remain.
    fn remove(&self, path: &Path) -> Option<String> {
        let (file, removed) = match self {
            Self::Stream => return None,
            Self::Archive { partial, .. } => (partial, fs::remove_file(partial)),
            Self::Directory {
                created: Some(created),
            } => (created, fs::remove_dir_all(created)),
            Self::Directory { created: None } => {
                let path = path.display();
                return Some(format!("files copied so far remain in {path}"));
            }
        };
        let error = removed.err()?;
        Some(format!("cannot remove {}: {error}", file.display()))
    }
}

/// Unpacks to the end of the stream, also behind the end of the archive: the node must be able to
/// send everything. A directory that was created for it becomes like the one that was copied.
fn unpack_chunks(chunks: Chunks, target: &Path, restore_root: bool) -> io::Result<Report> {
    let mut archive = GzDecoder::new(chunks);
    let extra = archive.header().and_then(GzHeader::extra);
    let root = extra.filter(|_| restore_root).and_then(root_of_field);
    let report = unpack(&mut archive, target, root.as_ref())?;
    io::copy(&mut archive, &mut io::sink())?;
    Ok(report)
}

fn write_chunks(mut chunks: Chunks, mut out: impl Write) -> io::Result<()> {
    while let Some(chunk) = chunks.next()? {
        out.write_all(&chunk)?;
    }
    out.flush()
}

/// The chunks of the stream as one reader.
struct Chunks {
    receive: mpsc::Receiver<Bytes>,
    current: Bytes,
    abandoned: Arc<AtomicBool>,
}

impl Chunks {
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let chunk = self.receive.blocking_recv();
        self.check()?;
        Ok(chunk)
    }

    fn check(&self) -> io::Result<()> {
        if self.abandoned.load(Ordering::Relaxed) {
            return Err(io::Error::other("copy abandoned"));
        }
        Ok(())
    }
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Not only between chunks: a small one can unpack into gigabytes.
        self.check()?;
        if self.current.is_empty() {
            match self.next()? {
                Some(next) => self.current = next,
                None => return Ok(0),
            }
        }
        let length = self.current.len().min(buffer.len());
        self.current.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}
