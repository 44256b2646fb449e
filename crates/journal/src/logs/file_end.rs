//! The end of a file, for the writer that continues it.

use std::fs::File;
use std::io;

use super::lines::BLOCK;
use crate::Timestamp;
use crate::cri::{Stream, line_len, parse_ended, write_record};
use crate::io::{as_u64, read_full};

#[derive(Debug)]
pub(super) struct FileEnd {
    pub(super) last_time: Option<Timestamp>,
    newline_missing: bool,
    /// By stream: true if the last record is partial, so that the next one would continue it.
    unfinished: [bool; 2],
}

impl FileEnd {
    /// Reads the last block of the file.
    pub(super) fn read(file: &File, file_bytes: u64) -> io::Result<Self> {
        let start = file_bytes.saturating_sub(as_u64(BLOCK));
        let mut block = vec![0; usize::try_from(file_bytes - start).unwrap_or(BLOCK)];
        let len = read_full(file, &mut block, start)?;
        let mut rest = &block[..len];
        let mut end = Self {
            last_time: None,
            newline_missing: rest.last().is_some_and(|byte| *byte != b'\n'),
            unfinished: [false; 2],
        };
        if start > 0 {
            // The block may begin in the middle of a line.
            rest = &rest[line_len(rest)..];
        }
        while !rest.is_empty() {
            let (line, after) = rest.split_at(line_len(rest));
            let record = parse_ended(line);
            end.last_time = record.time.or(end.last_time);
            end.unfinished[record.stream.index()] = record.partial;
            rest = after;
        }
        Ok(end)
    }

    /// Returns the bytes to append so that the next record is separate; none if the file ends well.
    pub(super) fn repair(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.newline_missing {
            bytes.push(b'\n');
        }
        let time = self.last_time.unwrap_or_default();
        for stream in Stream::BOTH {
            if self.unfinished[stream.index()] {
                write_record(&mut bytes, time, stream, false, b"");
            }
        }
        bytes
    }
}
