//! The last lines of a log, found by reading backwards from its end.
//!
//! A line here is a logical one: partial records and the one that ends them, all of one stream.
//! Blocking; reads no more than the requested lines and a bounded part before them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::bisect;
use super::file_cursor::FileCursor;
use super::files::Files;
use super::lines::Lines;
use super::query::LogQuery;
use super::reader::Snapshot;
use super::window::Window;
use crate::cri::Record;

/// The distance to search back for the start of a line that another stream's lines interrupt.
const LOOK_BACK_BYTES: u64 = 64 * 1024;

/// The start of the last lines.
#[derive(Debug)]
pub(super) struct Tail {
    /// Starts of lines that end after the cursor, without the records between.
    pub(super) head: Vec<u8>,
    /// From here on everything is wanted. `None` if there is no file.
    pub(super) cursor: Option<FileCursor>,
}

pub(super) fn find(
    files: &mut Files,
    generations: &[u64],
    snapshot: Option<Snapshot>,
    query: &LogQuery,
    count: u64,
) -> io::Result<Tail> {
    let mut search = Search {
        wanted: Wanted::new(count),
        cursor: None,
        look_back: None,
    };
    for generation in generations.iter().rev() {
        // Generations older than a deleted one are deleted too.
        let Some(file) = files.open_generation(*generation)? else {
            break;
        };
        let newest = search.cursor.is_none();
        let mut end = match snapshot {
            Some(snapshot) if newest => snapshot.size,
            _ => file.metadata()?.len(),
        };
        if newest && query.follow {
            end = Lines::new(&file, end).complete_end()?;
        }
        let more = search.look_through(*generation, file, end, query)?;
        if !more {
            break;
        }
    }
    let pieces = search
        .look_back
        .map(|look_back| look_back.pieces)
        .unwrap_or_default();
    let head = pieces.into_iter().rev().flatten().collect();
    Ok(Tail {
        head,
        cursor: search.cursor,
    })
}

struct Search {
    wanted: Wanted,
    cursor: Option<FileCursor>,
    /// Set once an unwanted record was found.
    look_back: Option<LookBack>,
}

struct LookBack {
    bytes_left: u64,
    /// Wanted records, newest first.
    pieces: Vec<Vec<u8>>,
}

impl Search {
    /// Reads one file backwards; false when everything is found.
    fn look_through(
        &mut self,
        generation: u64,
        file: File,
        end: u64,
        query: &LogQuery,
    ) -> io::Result<bool> {
        let mut lines = Lines::new(&file, end);
        let first = match query.since {
            Some(since) => bisect::find(&mut lines, |time| time >= since)?,
            None => 0,
        };
        let last = match query.until {
            Some(until) => bisect::find(&mut lines, |time| time > until)?,
            None => end,
        };
        let mut at = last;
        // Where in this file everything is wanted from.
        let mut start = last;
        while at > first && self.wanted.any() {
            let line_end = at;
            at = lines.start_before(line_end)?.max(first);
            let taken = self.wanted.take(&lines.header_at(at)?);
            match &mut self.look_back {
                None if taken => start = at,
                None => {
                    self.look_back = Some(LookBack {
                        bytes_left: LOOK_BACK_BYTES,
                        pieces: Vec::new(),
                    });
                }
                Some(look_back) => {
                    let Some(left) = look_back.bytes_left.checked_sub(line_end - at) else {
                        self.wanted.give_up();
                        break;
                    };
                    look_back.bytes_left = left;
                    if taken {
                        look_back.pieces.push(read_line(&file, at, line_end)?);
                    }
                }
            }
        }
        if self.cursor.is_none() || start < last {
            let window = Window::new(query, start < last);
            self.cursor = Some(FileCursor::new(generation, file, start, window));
        }
        Ok(self.wanted.any())
    }
}

fn read_line(file: &File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut line = vec![0; usize::try_from(end - start).unwrap_or(0)];
    file.read_exact_at(&mut line, start)?;
    if !line.ends_with(b"\n") {
        line.push(b'\n');
    }
    Ok(line)
}

/// Selects the records of the last lines, from the newest to the oldest.
struct Wanted {
    lines_left: u64,
    /// By stream: true inside a wanted line, so that partial records before belong to it.
    inside: [bool; 2],
}

impl Wanted {
    fn new(lines: u64) -> Self {
        Self {
            lines_left: lines,
            inside: [false; 2],
        }
    }

    fn any(&self) -> bool {
        self.lines_left > 0 || self.inside.contains(&true)
    }

    fn give_up(&mut self) {
        *self = Self::new(0);
    }

    fn take(&mut self, record: &Record<'_>) -> bool {
        let inside = &mut self.inside[record.stream.index()];
        if record.partial && *inside {
            return true;
        }
        // A record that ends a line, or the end of one that is not finished yet.
        *inside = self.lines_left > 0;
        self.lines_left = self.lines_left.saturating_sub(1);
        *inside
    }
}
