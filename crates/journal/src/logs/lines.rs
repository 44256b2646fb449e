//! Finding lines in a file without reading all of it.
//!
//! Reads blocks at given offsets and keeps one of them. Memory stays bounded however long a line
//! is: of a line that does not fit, only the beginning is read.

use std::fs::File;
use std::io;

use crate::cri::{MAX_HEADER, Record, line_len, parse_ended};
use crate::io::{as_u64, read_full};

pub(super) const BLOCK: usize = 64 * 1024;

/// A file up to `end`, read block by block.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    file: &'a File,
    end: u64,
    block: Vec<u8>,
    block_start: u64,
}

impl<'a> Lines<'a> {
    pub(super) fn new(file: &'a File, end: u64) -> Self {
        Self {
            file,
            end,
            block: Vec::new(),
            block_start: 0,
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the start of the first line that begins at or after `at`; the end if there is none.
    pub(super) fn start_from(&mut self, at: u64) -> io::Result<u64> {
        match at.checked_sub(1) {
            Some(before) => self.after_newline(before),
            None => Ok(0),
        }
    }

    /// Returns the start of the line after the one that contains `at`.
    pub(super) fn after_newline(&mut self, mut at: u64) -> io::Result<u64> {
        while at < self.end {
            let bytes = self.bytes_from(at)?;
            if bytes.is_empty() {
                break;
            }
            let len = line_len(bytes);
            let found = bytes[len - 1] == b'\n';
            at += as_u64(len);
            if found {
                return Ok(at);
            }
        }
        Ok(self.end)
    }

    /// Returns the start of the line that ends just before `line_end`.
    pub(super) fn start_before(&mut self, line_end: u64) -> io::Result<u64> {
        // The byte before `line_end` may be this line's own newline.
        let mut upper = line_end.saturating_sub(1);
        while upper > 0 {
            let bytes = self.bytes_before(upper)?;
            if bytes.is_empty() {
                break;
            }
            if let Some(newline) = bytes.iter().rposition(|byte| *byte == b'\n') {
                return Ok(upper - as_u64(bytes.len() - newline - 1));
            }
            upper -= as_u64(bytes.len());
        }
        Ok(0)
    }

    /// Returns the end of the last line with a newline.
    pub(super) fn complete_end(&mut self) -> io::Result<u64> {
        self.start_before(self.end + 1)
    }

    /// Parses the line at `start`; long text is truncated.
    pub(super) fn header_at(&mut self, start: u64) -> io::Result<Record<'_>> {
        let in_block = start
            .checked_sub(self.block_start)
            .and_then(|at| usize::try_from(at).ok());
        let enough = in_block.is_some_and(|at| {
            self.block.get(at..).is_some_and(|rest| {
                rest.len() >= MAX_HEADER || rest[..line_len(rest)].ends_with(b"\n")
            })
        });
        if !enough {
            self.load(start)?;
        }
        let at = usize::try_from(start - self.block_start).unwrap_or(usize::MAX);
        let rest = self.block.get(at..).unwrap_or_default();
        let line = &rest[..line_len(&rest[..rest.len().min(MAX_HEADER)])];
        Ok(parse_ended(line))
    }

    /// Returns bytes from `at` on, at least one unless the file ends there.
    fn bytes_from(&mut self, at: u64) -> io::Result<&[u8]> {
        if at < self.block_start || at >= self.block_start + as_u64(self.block.len()) {
            self.load(at)?;
        }
        let skip = usize::try_from(at - self.block_start).unwrap_or(usize::MAX);
        Ok(self.block.get(skip..).unwrap_or_default())
    }

    /// Returns bytes up to `upper`, at least one unless that is the start of the file.
    fn bytes_before(&mut self, upper: u64) -> io::Result<&[u8]> {
        if upper <= self.block_start || upper > self.block_start + as_u64(self.block.len()) {
            // Including the byte at `upper`, the newline of the wanted line.
            self.load(upper.saturating_sub(as_u64(BLOCK - 1)))?;
        }
        let len = usize::try_from(upper - self.block_start).unwrap_or(usize::MAX);
        Ok(self.block.get(..len).unwrap_or_default())
    }

    fn load(&mut self, at: u64) -> io::Result<()> {
        let wanted = self.end.saturating_sub(at).min(as_u64(BLOCK));
        self.block
            .resize(usize::try_from(wanted).unwrap_or(BLOCK), 0);
        self.block_start = at;
        let len = read_full(self.file, &mut self.block, at)?;
        self.block.truncate(len);
        Ok(())
    }
}
