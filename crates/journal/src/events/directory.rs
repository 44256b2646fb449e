//! The directory of segment files: names, lock, and the scan when a store is opened.
//!
//! A segment that a crash or a failing disk left corrupt must never prevent opening, and unknown
//! files must never be touched.

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

/// Far above the size of any segment; bytes beyond are ignored.
const MAX_SEGMENT_READ: u64 = 8 * 1024 * 1024;

/// Summary of a segment, kept in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// The lowest sequence number it may contain; names the file.
    pub(super) first: u64,
    pub(super) events: u64,
    pub(super) newest: Option<Timestamp>,
    /// The length of the readable part.
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

/// The result of a scan: the segments, and the number of the next event.
#[derive(Debug)]
pub(super) struct Inventory {
    pub(super) segments: Vec<Segment>,
    pub(super) next_seq: u64,
    pub(super) last: Option<EventId>,
}

/// An event directory locked by this process for as long as this value lives.
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

    /// Creates an empty segment that survives power loss. An existing file of that name can only
    /// be one without a complete record.
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

    /// Reads all segments and finds the end of the journal. Changes nothing, and refuses segments
    /// of a newer format.
    pub(super) fn scan(&self) -> Result<Inventory, EventError> {
        let mut inventory = Inventory {
            segments: Vec::new(),
            next_seq: 1,
            last: None,
        };
        // Numbers that readers may have seen at the corrupt end of the newest segment. Those of
        // older segments are below the name of the next one.
        let mut maybe_seen = 0;
        for (first, is_file) in self.named_segments()? {
            let counted = if is_file {
                self.count_segment(first, &mut inventory)?
            } else {
                None
            };
            // An unreadable file still occupies its name.
            inventory.next_seq = inventory.next_seq.max(first + u64::from(counted.is_none()));
            maybe_seen = counted.unwrap_or(0);
        }
        inventory.next_seq += maybe_seen;
        Ok(inventory)
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

    /// Adds a segment to the inventory. Returns the number of events its corrupt end may have
    /// contained; `None` if the file is unreadable.
    fn count_segment(
        &self,
        first: u64,
        inventory: &mut Inventory,
    ) -> Result<Option<u64>, EventError> {
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
            inventory.next_seq = inventory.next_seq.max(event.id.seq + 1);
            inventory.last = Some(event.id);
        }
        segment.bytes = walk.good_end();
        inventory.segments.push(segment);
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
