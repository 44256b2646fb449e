//! The directory of segment files: naming, locking, and taking stock when a store is opened.
//!
//! Opening must never refuse because of what a crash or a failing disk left in a segment, and
//! must never touch files it does not know.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::error::EventError;
use super::event::EventId;
use super::header::{self, FORMAT_VERSION};
use super::segment::{MAX_SEQ, Walk};
use crate::Timestamp;
use crate::lock::FileLock;

/// Far above any size a segment of ours can reach: what lies beyond is not ours.
const MAX_SEGMENT_READ: u64 = 8 * 1024 * 1024;

/// What is known of a segment without reading it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// The first sequence number it may hold; names the file.
    pub(super) first: u64,
    pub(super) events: u64,
    pub(super) newest: Option<Timestamp>,
    /// The length of what may be read.
    pub(super) bytes: u64,
}

impl Segment {
    pub(super) fn empty(first: u64) -> Self {
        Self {
            first,
            events: 0,
            newest: None,
            bytes: 0,
        }
    }

    pub(super) fn add(&mut self, time: Timestamp, end: u64) {
        self.events += 1;
        self.newest = self.newest.max(Some(time));
        self.bytes = end;
    }
}

/// The segments found, and the number the next event gets.
#[derive(Debug)]
pub(super) struct Stock {
    pub(super) segments: Vec<Segment>,
    pub(super) next_seq: u64,
    pub(super) last: Option<EventId>,
}

/// An event directory held by this process alone for as long as this value lives.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    lock: FileLock,
}

impl Directory {
    pub(super) fn lock(path: &Path) -> Result<Self, EventError> {
        let open_error = |source| EventError::Open {
            path: path.to_owned(),
            source,
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(open_error)?;
        let handle = File::open(path).map_err(open_error)?;
        match FileLock::take(handle).map_err(open_error)? {
            Some(lock) => Ok(Self {
                path: path.to_owned(),
                lock,
            }),
            None => Err(EventError::Locked {
                path: path.to_owned(),
            }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn segment_path(&self, first: u64) -> PathBuf {
        self.path.join(format!("{first:020}.seg"))
    }

    /// Makes a new, empty segment that is still there after a power cut. A file of that name can
    /// only be one whose first record never became whole.
    pub(super) fn create_segment(&self, first: u64) -> io::Result<File> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.segment_path(first))?;
        self.lock.file().sync_all()?;
        Ok(file)
    }

    pub(super) fn open_segment(&self, first: u64) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.segment_path(first))
    }

    /// Reads all segments and finds where to go on. Changes nothing, and refuses segments of a
    /// newer format.
    pub(super) fn take_stock(&self) -> Result<Stock, EventError> {
        let mut stock = Stock {
            segments: Vec::new(),
            next_seq: 1,
            last: None,
        };
        // Numbers that readers may have seen at the end of the newest segment. Those of older
        // ones lie below the name of the segment after them.
        let mut maybe_seen = 0;
        for (first, is_file) in self.named_segments()? {
            let counted = if is_file {
                self.count_segment(first, &mut stock)?
            } else {
                None
            };
            // What cannot be read still takes up the name.
            stock.next_seq = stock.next_seq.max(first + u64::from(counted.is_none()));
            maybe_seen = counted.unwrap_or(0);
        }
        stock.next_seq += maybe_seen;
        Ok(stock)
    }

    fn named_segments(&self) -> Result<Vec<(u64, bool)>, EventError> {
        let open_error = |source| EventError::Open {
            path: self.path.clone(),
            source,
        };
        let mut found = Vec::new();
        for entry in self.path.read_dir().map_err(open_error)? {
            let entry = entry.map_err(open_error)?;
            let Some(first) = entry.file_name().to_str().and_then(parse_name) else {
                continue;
            };
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            found.push((first, is_file));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Adds a segment to the stock. Gives how many events its damaged end may have held, or
    /// nothing if the file cannot be read.
    fn count_segment(&self, first: u64, stock: &mut Stock) -> Result<Option<u64>, EventError> {
        let mut bytes = Vec::new();
        let read = File::open(self.segment_path(first))
            .and_then(|file| file.take(MAX_SEGMENT_READ).read_to_end(&mut bytes));
        if read.is_err() {
            return Ok(None);
        }
        if let Some(header) = header::decode(&bytes, first)
            && header.version > FORMAT_VERSION
        {
            return Err(EventError::Newer {
                path: self.segment_path(first),
                found: header.version,
                supported: FORMAT_VERSION,
            });
        }
        let mut segment = Segment::empty(first);
        let mut walk = Walk::new(first, 0, &bytes, false);
        for event in walk.by_ref() {
            segment.events += 1;
            segment.newest = segment.newest.max(Some(event.id.time));
            stock.next_seq = stock.next_seq.max(event.id.seq + 1);
            stock.last = Some(event.id);
        }
        segment.bytes = walk.good_end();
        stock.segments.push(segment);
        Ok(Some(walk.maybe_seen_after_end()))
    }
}

fn parse_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".seg")?;
    if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits
        .parse()
        .ok()
        .filter(|first| (1..MAX_SEQ).contains(first))
}
