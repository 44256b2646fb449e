//! The binary pages of the kernel's ring buffer: a header, then events with their times.
//!
//! Every length is checked, although the bytes come from the kernel: what they hold depends on the
//! kernel's version.

pub use crate::format::PageFormat;

/// Bits of the number of bytes in use.
const COMMIT_MASK: u64 = (1 << 27) - 1;
/// Events before this page were overwritten.
const MISSED: u64 = 1 << 31;

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// An event: its time, and its data with the number of its kind in the first two bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// Nanoseconds of the clock of the buffer.
    pub time: u64,
    pub data: &'a [u8],
}

/// A page of the ring buffer.
#[derive(Debug)]
pub struct Page<'a> {
    /// Whether events before this page were lost.
    pub missed: bool,
    events: &'a [u8],
    time: u64,
}

impl<'a> Page<'a> {
    /// Reads the header; `None` if the page is too short for it.
    pub fn parse(bytes: &'a [u8], format: PageFormat) -> Option<Self> {
        let time = u64::from_ne_bytes(*bytes.first_chunk()?);
        let commit = bytes.get(format.commit.0..)?;
        let commit = match format.commit.1 {
            8 => u64::from_ne_bytes(*commit.first_chunk()?),
            _ => u32::from_ne_bytes(*commit.first_chunk()?).into(),
        };
        let events = bytes.get(format.data..)?;
        let used = usize::try_from(commit & COMMIT_MASK).ok()?;
        Some(Self {
            missed: commit & MISSED != 0,
            events: events.get(..used.min(events.len()))?,
            time,
        })
    }
}

impl<'a> Iterator for Page<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        loop {
            let (header, rest) = self.events.split_first_chunk()?;
            let header = u32::from_ne_bytes(*header);
            // Bit fields start at the other end on big-endian machines.
            let (kind, delta) = if cfg!(target_endian = "big") {
                (header >> 27, header & 0x7ff_ffff)
            } else {
                (header & 0x1f, header >> 5)
            };
            let word = rest.first_chunk().map(|word| u32::from_ne_bytes(*word));
            match kind {
                PADDING if delta == 0 => {
                    self.events = &[];
                    return None;
                }
                PADDING => self.events = rest.get(word? as usize..)?,
                TIME_EXTEND | TIME_STAMP => {
                    let value = (u64::from(word?) << 27).wrapping_add(delta.into());
                    self.time = match kind {
                        TIME_EXTEND => self.time.wrapping_add(value),
                        _ => value,
                    };
                    self.events = rest.get(4..)?;
                }
                _ => {
                    self.time = self.time.wrapping_add(delta.into());
                    // A length of its own includes its word.
                    let (start, end) = match kind {
                        0 => (4, word? as usize),
                        words => (0, words as usize * 4),
                    };
                    let data = rest.get(start..end)?;
                    self.events = rest.get(end.next_multiple_of(4)..).unwrap_or_default();
                    return Some(Event {
                        time: self.time,
                        data,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORMAT: PageFormat = PageFormat::usual();

    fn page(time: u64, flags: u64, events: &[u8]) -> Vec<u8> {
        let mut page = time.to_ne_bytes().to_vec();
        page.extend((flags | events.len() as u64).to_ne_bytes());
        page.extend(events);
        page.resize(FORMAT.size.max(page.len()), 0xee);
        page
    }

    fn header(kind: u32, delta: u32) -> [u8; 4] {
        (kind | delta << 5).to_ne_bytes()
    }

    proptest! {
        #[test]
        fn events_are_read_as_the_kernel_writes_them(
            start in 0..1_u64 << 40,
            written in proptest::collection::vec(
                (0..1_u64 << 40, proptest::collection::vec(any::<u8>(), 4..60)), 0..20),
        ) {
            let (mut bytes, mut expected, mut time) = (Vec::new(), Vec::new(), start);
            for (delta, mut data) in written {
                data.truncate(data.len() / 4 * 4);
                time += delta;
                let (high, low) = (u32::try_from(delta >> 27).unwrap(), u32::try_from(delta & 0x7ff_ffff).unwrap());
                if high > 0 {
                    bytes.extend(header(TIME_EXTEND, low));
                    bytes.extend(high.to_ne_bytes());
                }
                let delta = if high > 0 { 0 } else { low };
                let words = u32::try_from(data.len() / 4).unwrap();
                if words > 8 {
                    bytes.extend(header(0, delta));
                    bytes.extend((words * 4 + 4).to_ne_bytes());
                } else {
                    bytes.extend(header(words, delta));
                }
                bytes.extend(&data);
                expected.push((time, data));
            }
            let page = page(start, 0, &bytes);
            let read = Page::parse(&page, FORMAT).unwrap();
            prop_assert!(!read.missed);
            let read: Vec<_> = read.map(|event| (event.time, event.data.to_vec())).collect();
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn no_bytes_make_it_panic_or_loop(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let count = Page::parse(&bytes, FORMAT).map_or(0, Iterator::count);
            prop_assert!(count <= bytes.len());
        }
    }

    #[test]
    fn padding_and_absolute_times_and_lost_events_are_known() {
        let mut events = header(PADDING, 1).to_vec();
        events.extend(12_u32.to_ne_bytes());
        events.extend([9; 8]);
        events.extend(header(TIME_STAMP, 5));
        events.extend(1_u32.to_ne_bytes());
        events.extend(header(1, 2));
        events.extend([1, 2, 3, 4]);
        events.extend(header(PADDING, 0));
        events.extend([7; 40]);
        let page = page(77, MISSED, &events);
        let mut read = Page::parse(&page, FORMAT).unwrap();
        assert!(read.missed);
        let event = Event {
            time: (1 << 27) + 7,
            data: &[1, 2, 3, 4],
        };
        assert_eq!(read.next(), Some(event));
        assert_eq!(read.next(), None);
    }
}
