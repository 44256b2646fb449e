//! Reading a log forwards, from file to file.
//!
//! Blocking; called from blocking threads only. Memory is bounded whatever the files contain, and no
//! content is an error.

use std::fs::File;
use std::io;
use std::mem;

use super::bisect;
use super::chunk::{LogChunk, Shape};
use super::error::LogError;
use super::file_cursor::{Extent, FileCursor};
use super::files::Files;
use super::lines::Lines;
use super::query::LogQuery;
use super::tail;
use super::window::Window;

/// The result of one step.
#[derive(Debug)]
pub(super) enum Step {
    Chunk(LogChunk),
    /// No more lines until something is written; only when following.
    Wait,
    End,
}

/// The newest generation when the read started, and its size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshot {
    pub(super) generation: u64,
    pub(super) size: u64,
}

#[derive(Debug)]
pub(super) struct Reader {
    files: Files,
    query: LogQuery,
    /// The end of the read, unless following.
    snapshot: Option<Snapshot>,
    /// Records to deliver before all else.
    head: Vec<u8>,
    cursor: Option<FileCursor>,
    /// True if the file being read has a successor, so that nothing will be appended to it.
    complete: bool,
    /// The generation to read next; the oldest one if not known.
    expected: Option<u64>,
    /// True if generations were deleted before they were read.
    missed: bool,
    /// True if nothing will be appended to the log: the read ends at its end.
    closing: bool,
}

impl Reader {
    /// Opens a reader at the start of the query.
    pub(super) fn open(files: Files, query: LogQuery) -> Result<Self, LogError> {
        let mut reader = Self {
            files,
            query,
            snapshot: None,
            head: Vec::new(),
            cursor: None,
            complete: false,
            expected: None,
            missed: false,
            closing: false,
        };
        reader
            .find_start()
            .map_err(|source| reader.read_error(source))?;
        Ok(reader)
    }

    pub(super) fn name(&self) -> &str {
        self.files.name()
    }

    /// Announces that nothing will be appended.
    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    /// Reads the next chunk.
    pub(super) fn step(&mut self) -> Result<Step, LogError> {
        self.try_step().map_err(|source| self.read_error(source))
    }

    fn find_start(&mut self) -> io::Result<()> {
        let generations = self.files.generations()?;
        if !self.query.follow {
            let generation = generations.last().copied().unwrap_or(0);
            let file = self.files.open_generation(generation)?;
            let size = file.map_or(Ok(0), |file| file.metadata().map(|metadata| metadata.len()))?;
            self.snapshot = Some(Snapshot { generation, size });
        }
        self.expected = generations.first().copied();
        if let Some(count) = self.query.tail {
            let query = &self.query;
            let tail = tail::find(&mut self.files, &generations, self.snapshot, query, count)?;
            self.head = tail.head;
            self.cursor = tail.cursor;
        }
        Ok(())
    }

    fn try_step(&mut self) -> io::Result<Step> {
        if !self.head.is_empty() {
            let head = mem::take(&mut self.head);
            return Ok(self.chunk(head, Shape::Lines));
        }
        loop {
            let Some(cursor) = &mut self.cursor else {
                if self.enter_next()? {
                    continue;
                }
                return Ok(self.nothing_left());
            };
            let cut = self.files.may_be_cut();
            if cut && self.snapshot.is_none() && cursor.rewind_if_cut()? {
                self.missed = true;
            }
            let extent = match self.snapshot {
                Some(snapshot) if snapshot.generation == cursor.generation => Extent {
                    end: snapshot.size,
                    complete: true,
                },
                Some(_) => Extent {
                    end: cursor.size()?,
                    complete: true,
                },
                None => Extent {
                    end: cursor.size()?,
                    complete: self.complete,
                },
            };
            if let Some((bytes, shape)) = cursor.read(extent)? {
                return Ok(self.chunk(bytes, shape));
            }
            let generation = cursor.generation;
            if extent.complete {
                self.expected = Some(generation + 1);
                self.cursor = None;
            } else if has_successor(&mut self.files, cursor)? {
                // Lines may have been appended since the last read: read once more.
                self.complete = true;
            } else if cursor.is_over() || self.closing || cut && cursor.is_deleted()? {
                return Ok(Step::End);
            } else {
                return Ok(Step::Wait);
            }
        }
    }

    /// Opens the next file; false if there is none (yet).
    fn enter_next(&mut self) -> io::Result<bool> {
        let Some((generation, file)) = self.open_expected()? else {
            return Ok(false);
        };
        let mut size = file.metadata()?.len();
        if let Some(snapshot) = self.snapshot
            && snapshot.generation == generation
        {
            size = snapshot.size;
        }
        let mut offset = 0;
        if let Some(since) = self.query.since {
            let mut lines = Lines::new(&file, size);
            if self.snapshot.is_none() {
                // A line that is still being written is neither found nor skipped.
                let end = lines.complete_end()?;
                lines = Lines::new(&file, end);
            }
            offset = bisect::find(&mut lines, |time| time >= since)?;
        }
        let window = Window::new(&self.query, false);
        self.cursor = Some(FileCursor::new(generation, file, offset, window));
        self.complete = false;
        Ok(true)
    }

    fn open_expected(&mut self) -> io::Result<Option<(u64, File)>> {
        let newest = self
            .snapshot
            .map_or(u64::MAX, |snapshot| snapshot.generation);
        loop {
            let least = self.expected.unwrap_or(0);
            if least > newest {
                return Ok(None);
            }
            if let Some(file) = self.files.open_generation(least)? {
                return Ok(Some((least, file)));
            }
            let generations = self.files.generations()?;
            let Some(oldest) = generations
                .into_iter()
                .find(|generation| *generation >= least)
            else {
                return Ok(None);
            };
            self.missed |= self.expected.is_some_and(|expected| expected < oldest);
            self.expected = Some(oldest);
        }
    }

    fn nothing_left(&mut self) -> Step {
        if self.snapshot.is_none() && !self.closing {
            return Step::Wait;
        }
        if self.missed {
            self.chunk(Vec::new(), Shape::Lines)
        } else {
            Step::End
        }
    }

    fn chunk(&mut self, bytes: Vec<u8>, shape: Shape) -> Step {
        Step::Chunk(LogChunk::new(bytes, shape, mem::take(&mut self.missed)))
    }

    fn read_error(&self, source: io::Error) -> LogError {
        LogError::Read {
            log: self.files.name().to_owned(),
            source,
        }
    }
}

/// True if a later generation exists. Generations are numbered without gaps and deleted oldest
/// first: without the next one, a later one exists only if the current one is deleted.
fn has_successor(files: &mut Files, cursor: &FileCursor) -> io::Result<bool> {
    if files.open_generation(cursor.generation + 1)?.is_some() {
        return Ok(true);
    }
    if !cursor.is_deleted()? {
        return Ok(false);
    }
    Ok(files
        .generations()?
        .iter()
        .any(|generation| *generation > cursor.generation))
}
