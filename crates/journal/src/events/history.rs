//! Reading events back from segment files.
//!
//! Blocking; called from blocking threads only. Corruption and segments deleted meanwhile are not
//! errors here: the caller detects missing events by their numbers.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::directory::{Directory, Segment};
use super::error::EventError;
use super::event::Event;
use super::record::MAX_RECORD;
use super::segment::Walk;
use crate::io::{as_u64, read_full};

/// The size of a read, enough for any record.
const BLOCK: usize = 2 * MAX_RECORD;

/// The file offset of the event with this number or the first after it; only an optimisation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    pub(super) seq: u64,
    segment: u64,
    offset: u64,
}

#[derive(Debug)]
pub(super) struct Page {
    pub(super) events: Vec<Arc<Event>>,
    pub(super) next: Option<Position>,
}

/// Reads up to `max` events from `seq` on, at least one if the segments have any.
pub(super) fn read_page(
    directory: &Directory,
    segments: &[Segment],
    seq: u64,
    position: Option<Position>,
    max: usize,
) -> Result<Page, EventError> {
    let holding = segments
        .partition_point(|segment| segment.first <= seq)
        .saturating_sub(1);
    for segment in &segments[holding..] {
        let path = directory.segment_path(segment.first);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(EventError::Read { path, source }),
        };
        let offset = position
            .filter(|known| known.segment == segment.first && known.seq == seq)
            .map_or(0, |known| known.offset);
        let page = read_segment(&file, segment, seq, offset, max);
        if !page.events.is_empty() {
            return Ok(page);
        }
    }
    Ok(Page {
        events: Vec::new(),
        next: None,
    })
}

fn read_segment(file: &File, segment: &Segment, seq: u64, mut offset: u64, max: usize) -> Page {
    let mut page = Page {
        events: Vec::new(),
        next: None,
    };
    let mut block = vec![0; BLOCK];
    while offset < segment.bytes && page.events.is_empty() {
        let wanted = usize::try_from(segment.bytes - offset).map_or(BLOCK, |left| left.min(BLOCK));
        // An unreadable part of the disk counts as corruption: its events are missing.
        let Ok(len) = read_full(file, &mut block[..wanted], offset) else {
            return page;
        };
        let more_follows = offset + as_u64(len) < segment.bytes;
        let mut walk = Walk::new(segment.first, offset, &block[..len], more_follows);
        while page.events.len() < max {
            let Some(event) = walk.next() else { break };
            if event.id.seq >= seq {
                page.next = Some(Position {
                    seq: event.id.seq + 1,
                    segment: segment.first,
                    offset: walk.good_end(),
                });
                page.events.push(Arc::new(event));
            }
        }
        if len == 0 || walk.resume_at() == offset {
            return page;
        }
        offset = walk.resume_at();
    }
    page
}
