//! The writer of segment files.
//!
//! Plain blocking code. A record is either complete in the file or, after a failed write, truncated
//! again; readers see it only after that.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::directory::{Directory, Inventory, Segment};
use super::error::EventError;
use super::event::EventId;
use super::header;
use super::record::{Location, encode};
use crate::Timestamp;
use crate::io::as_u64;

#[derive(Debug)]
pub(super) struct Writer {
    /// Shared, so that flushing to disk does not block publishing.
    file: Arc<File>,
    path: PathBuf,
    segment: u64,
    offset: u64,
    next_seq: u64,
    /// True if a failed write could not be truncated: the segment must not be appended to.
    torn: bool,
    buffer: Vec<u8>,
}

impl Writer {
    /// Continues the newest segment, without the torn end a crash may have left, or a new one.
    pub(super) fn open(
        directory: &Directory,
        inventory: &mut Inventory,
        segment_bytes: u64,
    ) -> Result<Self, EventError> {
        let newest = inventory
            .segments
            .last()
            .filter(|segment| segment.bytes < segment_bytes);
        let reopened = newest.and_then(|segment| {
            let file = directory.open_segment(segment.first).ok()?;
            file.set_len(segment.bytes).ok()?;
            Some((file, *segment))
        });
        let (file, segment) = match reopened {
            Some(reopened) => reopened,
            None => {
                let path = directory.path().to_owned();
                let file = directory
                    .create_segment(inventory.next_seq)
                    .map_err(|source| EventError::Open { path, source })?;
                let segment = Segment::empty(inventory.next_seq);
                inventory
                    .segments
                    .retain(|known| known.first != segment.first);
                inventory.segments.push(segment);
                (file, segment)
            }
        };
        Ok(Self {
            file: Arc::new(file),
            path: directory.segment_path(segment.first),
            segment: segment.first,
            offset: segment.bytes,
            next_seq: inventory.next_seq,
            torn: false,
            buffer: Vec::new(),
        })
    }

    pub(super) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    pub(super) fn needs_new_segment(&self, record_bytes: usize, segment_bytes: u64) -> bool {
        self.torn || (self.offset > 0 && self.offset + as_u64(record_bytes) > segment_bytes)
    }

    /// Flushes the current segment to disk and starts a new one.
    pub(super) fn start_segment(&mut self, directory: &Directory) -> Result<Segment, EventError> {
        self.file.sync_data().map_err(|source| EventError::Sync {
            path: self.path.clone(),
            source,
        })?;
        let path = directory.segment_path(self.next_seq);
        let file = directory
            .create_segment(self.next_seq)
            .map_err(|source| EventError::Write {
                path: path.clone(),
                source,
            })?;
        self.file = Arc::new(file);
        self.path = path;
        self.segment = self.next_seq;
        self.offset = 0;
        self.torn = false;
        Ok(Segment::empty(self.segment))
    }

    /// Writes one record; returns its id and the offset after it.
    pub(super) fn append(
        &mut self,
        kind: &str,
        payload: &[u8],
    ) -> Result<(EventId, u64), EventError> {
        let id = EventId {
            seq: self.next_seq,
            time: Timestamp::now(),
        };
        self.buffer.clear();
        // Together with the first event: older builds would count a header without events as a
        // lost event.
        if self.offset == 0 {
            header::encode(&mut self.buffer, self.segment, id.time);
        }
        let location = Location {
            segment: self.segment,
            offset: self.offset + as_u64(self.buffer.len()),
        };
        encode(&mut self.buffer, location, id, kind, payload);
        // One system call unless the kernel writes only a part.
        if let Err(source) = self.file.write_all_at(&self.buffer, self.offset) {
            self.torn = self.file.set_len(self.offset).is_err();
            return Err(EventError::Write {
                path: self.path.clone(),
                source,
            });
        }
        self.offset += as_u64(self.buffer.len());
        self.next_seq += 1;
        Ok((id, self.offset))
    }
}
