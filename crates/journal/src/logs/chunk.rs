//! A chunk of a log: many records in one buffer.

use crate::Timestamp;
use crate::cri::{Record, Stream, line_len, parse_line};

/// Records in the order of the file. Iterating over them allocates nothing.
#[derive(Debug)]
pub struct LogChunk {
    bytes: Vec<u8>,
    shape: Shape,
    missed: bool,
}

/// The structure of a chunk's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Whole lines; the newline of the last one may be missing.
    Lines,
    /// The beginning of a line too long for one chunk.
    LongLineStart,
    /// A continuation of such a line.
    LongLineMore {
        time: Option<Timestamp>,
        stream: Stream,
        partial: bool,
    },
}

impl LogChunk {
    pub(super) fn new(bytes: Vec<u8>, shape: Shape, missed: bool) -> Self {
        Self {
            bytes,
            shape,
            missed,
        }
    }

    /// True if files were deleted before they were read: lines are missing before this chunk.
    pub fn missed(&self) -> bool {
        self.missed
    }

    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let (line, after) = match self.shape {
                Shape::Lines => rest.split_at(line_len(rest)),
                Shape::LongLineStart | Shape::LongLineMore { .. } => (rest, &b""[..]),
            };
            rest = after;
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            Some(match self.shape {
                Shape::Lines => parse_line(line),
                Shape::LongLineStart => Record {
                    partial: true,
                    ..parse_line(line)
                },
                Shape::LongLineMore {
                    time,
                    stream,
                    partial,
                } => Record {
                    unterminated: false,
                    time,
                    stream,
                    partial,
                    text: line,
                },
            })
        })
    }

    /// Appends the text of all records: partial ones joined with those that follow in the same
    /// stream, and a newline after each whole line. An unfinished line comes last, without a newline.
    pub fn append_text(&self, out: &mut Vec<u8>) {
        out.reserve(self.bytes.len());
        // Only used while one stream's line is unfinished and the other stream has lines.
        let mut waiting: [Vec<u8>; 2] = [Vec::new(), Vec::new()];
        for record in self.records() {
            let begun = &mut waiting[record.stream.index()];
            if record.partial {
                begun.extend_from_slice(record.text);
            } else {
                out.append(begun);
                out.extend_from_slice(record.text);
                out.push(b'\n');
            }
        }
        for begun in &waiting {
            out.extend_from_slice(begun);
        }
    }
}
