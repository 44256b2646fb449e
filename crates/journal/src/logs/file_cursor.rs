//! Reading one file of a log forwards.
//!
//! Delivers whole lines only, except of a line too long for memory, and nothing twice.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use super::chunk::Shape;
use super::window::Window;
use crate::Timestamp;
use crate::cri::{MAX_HEADER, Stream, line_len, parse_line};
use crate::io::{as_u64, read_full};

const CHUNK_BYTES: usize = 64 * 1024;
/// A line longer than this is delivered in pieces.
const LONG_LINE_BYTES: usize = 1024 * 1024;

#[derive(Debug)]
pub(super) struct FileCursor {
    pub(super) generation: u64,
    file: File,
    offset: u64,
    window: Window,
    long_line: Option<LongLine>,
}

/// A line whose beginning has been read.
#[derive(Clone, Copy, Debug)]
struct LongLine {
    time: Option<Timestamp>,
    stream: Stream,
    partial: bool,
    wanted: bool,
}

/// The part of a file that may be read now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) end: u64,
    /// True if nothing will be appended, so that a last line without a newline is complete.
    pub(super) complete: bool,
}

type Stretch = (Vec<u8>, Shape);

impl FileCursor {
    /// `offset` must be the beginning of a line.
    pub(super) fn new(generation: u64, file: File, offset: u64, window: Window) -> Self {
        Self {
            generation,
            file,
            offset,
            window,
            long_line: None,
        }
    }

    pub(super) fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    pub(super) fn is_deleted(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.nlink() == 0)
    }

    /// Rewinds if the file was truncated below the current offset.
    pub(super) fn rewind_if_cut(&mut self) -> io::Result<bool> {
        let cut = self.size()? < self.offset;
        if cut {
            self.offset = 0;
            self.long_line = None;
        }
        Ok(cut)
    }

    /// True if nothing that may be appended to this file is wanted.
    pub(super) fn is_over(&self) -> bool {
        self.window.passed()
    }

    /// Returns more lines; `None` at the end of this extent.
    pub(super) fn read(&mut self, extent: Extent) -> io::Result<Option<Stretch>> {
        while self.offset < extent.end && !self.window.passed() {
            let stretch = match self.long_line {
                Some(line) => self.read_long_line(line, extent)?,
                None => self.read_lines(extent)?,
            };
            match stretch {
                Some((bytes, _)) if bytes.is_empty() => {}
                other => return Ok(other),
            }
        }
        Ok(None)
    }

    fn read_lines(&mut self, extent: Extent) -> io::Result<Option<Stretch>> {
        let available = extent.end - self.offset;
        let mut bytes = self.read_bytes(available, CHUNK_BYTES)?;
        let mut newline = bytes.iter().rposition(|byte| *byte == b'\n');
        if newline.is_none() && as_u64(bytes.len()) < available {
            bytes = self.read_bytes(available, LONG_LINE_BYTES)?;
            newline = bytes.iter().rposition(|byte| *byte == b'\n');
        }
        match newline {
            Some(at) => bytes.truncate(at + 1),
            None if bytes.len() == LONG_LINE_BYTES => return Ok(Some(self.begin_long_line(bytes))),
            None if bytes.is_empty() || !extent.complete => return Ok(None),
            None => {}
        }
        self.offset += as_u64(bytes.len());
        Ok(Some((self.window.keep(bytes), Shape::Lines)))
    }

    fn begin_long_line(&mut self, bytes: Vec<u8>) -> Stretch {
        self.offset += as_u64(bytes.len());
        let record = parse_line(&bytes[..MAX_HEADER.min(bytes.len())]);
        let (time, stream, partial) = (record.time, record.stream, record.partial);
        let kept = self.window.keep(bytes);
        let wanted = !kept.is_empty();
        self.long_line = Some(LongLine {
            time,
            stream,
            partial,
            wanted,
        });
        (kept, Shape::LongLineStart)
    }

    fn read_long_line(&mut self, line: LongLine, extent: Extent) -> io::Result<Option<Stretch>> {
        let mut bytes = self.read_bytes(extent.end - self.offset, CHUNK_BYTES)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        bytes.truncate(line_len(&bytes));
        self.offset += as_u64(bytes.len());
        let cut_short = extent.complete && self.offset == extent.end;
        let ended = bytes.ends_with(b"\n") || cut_short;
        if ended {
            self.long_line = None;
        }
        if !line.wanted {
            bytes.clear();
        }
        let partial = line.partial || !ended;
        Ok(Some((
            bytes,
            Shape::LongLineMore {
                time: line.time,
                stream: line.stream,
                partial,
            },
        )))
    }

    fn read_bytes(&self, available: u64, at_most: usize) -> io::Result<Vec<u8>> {
        let len = usize::try_from(available).map_or(at_most, |available| available.min(at_most));
        let mut bytes = vec![0; len];
        let len = read_full(&self.file, &mut bytes, self.offset)?;
        bytes.truncate(len);
        Ok(bytes)
    }
}
