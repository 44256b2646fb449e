//! Sparse files: where a file has data, and the map in front of them (GNU format, PAX 1.0).

use std::io::{self, Read};
use std::os::fd::AsFd;

use rustix::fs::SeekFrom;

use crate::pax::number;
use crate::writer::BLOCK_BYTES;

/// The segments of one file that are kept apart. Of more, the smallest holes are archived as zeros.
const MAX_SEGMENTS: usize = 16 << 10;
/// The segments of one file that are read.
const MAX_READ_SEGMENTS: usize = 1 << 20;

/// A stretch of data in a sparse file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub offset: u64,
    pub length: u64,
}

impl Segment {
    fn end(self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// Returns the segments of a file of `size` bytes that contain data; `None` if it has no holes, or
/// its file system does not say. Moves the file's offset.
pub fn holes_of(file: impl AsFd, size: u64) -> Option<Vec<Segment>> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut smallest_hole = 1;
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Only a hole is left.
            Err(rustix::io::Errno::NXIO) => break,
            Err(_) => return None,
        };
        let end = rustix::fs::seek(&file, SeekFrom::Hole(start)).ok()?;
        let (start, end) = (start.min(size), end.min(size));
        if end <= at {
            break;
        }
        at = end;
        match segments.last_mut() {
            Some(last) if start.saturating_sub(last.end()) < smallest_hole => {
                last.length = end - last.offset;
            }
            _ => segments.push(Segment {
                offset: start,
                length: end - start,
            }),
        }
        while segments.len() > MAX_SEGMENTS {
            smallest_hole *= 2;
            merge(&mut segments, smallest_hole);
        }
    }
    let data: u64 = segments.iter().map(|segment| segment.length).sum();
    (data < size).then_some(segments)
}

/// Merges segments with a hole of less than `smallest_hole` bytes between them.
fn merge(segments: &mut Vec<Segment>, smallest_hole: u64) {
    segments.dedup_by(|next, last| {
        let merges = next.offset.saturating_sub(last.end()) < smallest_hole;
        if merges {
            last.length = next.end() - last.offset;
        }
        merges
    });
}

/// Returns the map, padded to blocks. A hole at the end has a segment of no bytes behind it.
pub(crate) fn map(size: u64, segments: &[Segment]) -> Vec<u8> {
    let end = Segment {
        offset: size,
        length: 0,
    };
    let ends_in_hole = segments.last().is_none_or(|last| last.end() < size);
    let all = segments.iter().chain(ends_in_hole.then_some(&end));
    let count = segments.len() + usize::from(ends_in_hole);
    let mut map = format!("{count}\n");
    for segment in all {
        map.push_str(&format!("{}\n{}\n", segment.offset, segment.length));
    }
    let mut map = map.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK_BYTES), 0);
    map
}

/// Reads the map of a file of `size` bytes. Returns the segments that have data, in order and apart,
/// and the bytes of the map.
pub(crate) fn read_map(mut data: impl Read, size: u64) -> io::Result<(Vec<Segment>, u64)> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "malformed map of a sparse file");
    let mut numbers = Numbers::default();
    let count: usize = numbers.next(&mut data)?.try_into().map_err(|_| wrong())?;
    if count > MAX_READ_SEGMENTS {
        return Err(wrong());
    }
    let mut segments = Vec::new();
    let mut end = 0;
    for _ in 0..count {
        let segment = Segment {
            offset: numbers.next(&mut data)?,
            length: numbers.next(&mut data)?,
        };
        let segment_end = segment.offset.checked_add(segment.length);
        if segment.offset < end || segment_end.is_none_or(|end| end > size) {
            return Err(wrong());
        }
        end = segment.end();
        if segment.length > 0 {
            segments.push(segment);
        }
    }
    Ok((segments, numbers.read))
}

/// Numbers, each on a line, read in blocks.
#[derive(Default)]
struct Numbers {
    block: Vec<u8>,
    at: usize,
    read: u64,
}

impl Numbers {
    fn next(&mut self, data: &mut impl Read) -> io::Result<u64> {
        let mut digits = Vec::new();
        loop {
            if self.at == self.block.len() {
                self.block.resize(BLOCK_BYTES, 0);
                data.read_exact(&mut self.block)?;
                self.read += BLOCK_BYTES as u64;
                self.at = 0;
            }
            let byte = self.block.get(self.at).copied().unwrap_or_default();
            self.at += 1;
            match byte {
                b'\n' => break,
                byte if digits.len() < 20 => digits.push(byte),
                _ => break,
            }
        }
        number(&digits)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a number in a map"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn holes_are_found() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 30).unwrap();
        assert_eq!(holes_of(&file, 1 << 30), Some(vec![]));
        file.write_all_at(b"data", 1 << 20).unwrap();
        let segments = holes_of(&file, 1 << 30).unwrap();
        assert_eq!(segments.len(), 1);
        assert!(segments[0].offset <= 1 << 20 && segments[0].end() >= (1 << 20) + 4);
        let full = tempfile::tempfile().unwrap();
        full.write_all_at(&[1; 10_000], 0).unwrap();
        assert_eq!(holes_of(&full, 10_000), None);
        assert_eq!(holes_of(&full, 0), None);
    }

    #[test]
    fn of_too_many_segments_the_nearest_are_merged() {
        let segment = |offset| Segment { offset, length: 4 };
        let mut segments = vec![segment(0), segment(5), segment(100), segment(105)];
        merge(&mut segments, 2);
        let merged = |offset| Segment { offset, length: 9 };
        assert_eq!(segments, [merged(0), merged(100)]);
    }

    proptest! {
        #[test]
        fn maps_survive(
            parts in proptest::collection::vec((0_u64..1 << 40, 1_u64..1 << 40), 0..200),
            tail in 0_u64..9,
        ) {
            let mut at = 0;
            let mut segments = Vec::new();
            for (gap, length) in parts {
                segments.push(Segment { offset: at + gap, length });
                at += gap + length;
            }
            let size = at + tail;
            let map = map(size, &segments);
            let (read, bytes) = read_map(&map[..], size).unwrap();
            prop_assert_eq!(read, segments);
            prop_assert_eq!(bytes, map.len() as u64);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, size: u64) {
            let _ = read_map(&bytes[..], size);
        }
    }
}
