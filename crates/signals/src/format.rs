//! The kernel's description of an event: its number, and where its fields are.

/// The place of an `int` in the data of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    offset: usize,
}

/// An event of two fields at most; the second may be the first again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventFormat {
    id: u16,
    first: Field,
    second: Field,
}

impl EventFormat {
    /// Parses the file `format` of an event.
    pub(crate) fn parse(text: &str, first: &str, second: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?;
        Some(Self {
            id: id.trim().parse().ok()?,
            first: field(text, first)?,
            second: field(text, second)?,
        })
    }

    /// Reads the two fields, if the data is of this event.
    pub(crate) fn read(&self, data: &[u8]) -> Option<(i32, i32)> {
        let id = u16::from_ne_bytes(*data.first_chunk()?);
        (id == self.id).then_some(())?;
        Some((self.first.read(data)?, self.second.read(data)?))
    }
}

impl Field {
    fn read(self, data: &[u8]) -> Option<i32> {
        let bytes = data.get(self.offset..)?.first_chunk()?;
        Some(i32::from_ne_bytes(*bytes))
    }
}

/// Finds a line such as `field:int sig; offset:8; size:4; signed:1;`, separated by tabs.
fn field(text: &str, name: &str) -> Option<Field> {
    text.lines().find_map(|line| {
        let mut parts = line.trim().split(';').map(str::trim);
        let declared = parts.next()?.strip_prefix("field:")?;
        (declared.rsplit([' ', '\t']).next() == Some(name)).then_some(())?;
        let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
        let size = parts.next()?.strip_prefix("size:")?;
        (size == "4").then_some(Field { offset })
    })
}

/// The layout of a page of the ring buffer, from the file `events/header_page`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageFormat {
    /// Offset and size of the number of bytes in use.
    pub(crate) commit: (usize, usize),
    /// Offset of the events.
    pub(crate) data: usize,
    /// The size of a page.
    pub(crate) size: usize,
}

impl PageFormat {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let place = |name: &str| {
            text.lines().find_map(|line| {
                let mut parts = line.trim().split(';').map(str::trim);
                let declared = parts.next()?;
                (declared.rsplit(' ').next() == Some(name)).then_some(())?;
                let offset: usize = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
                let size: usize = parts.next()?.strip_prefix("size:")?.parse().ok()?;
                Some((offset, size))
            })
        };
        let (commit, data) = (place("commit")?, place("data")?);
        let size = data.0.checked_add(data.1)?;
        let known = matches!(commit.1, 4 | 8) && data.0 >= 12 && size <= 1 << 20;
        known.then_some(Self {
            commit,
            data: data.0,
            size,
        })
    }

    /// The layout on machines with 64 bits and pages of 4 KiB.
    pub const fn usual() -> Self {
        Self {
            commit: (8, 8),
            data: 16,
            size: 4096,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNAL: &str = "name: signal_generate\nID: 261\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:int sig;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:char comm[16];\toffset:20;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t pid;\toffset:36;\tsize:4;\tsigned:1;\n";

    #[test]
    fn fields_are_found_by_name_and_read_at_their_offset() {
        let format = EventFormat::parse(SIGNAL, "sig", "pid").unwrap();
        let mut data = vec![0; 40];
        data[..2].copy_from_slice(&261_u16.to_ne_bytes());
        data[8..12].copy_from_slice(&9_i32.to_ne_bytes());
        data[36..].copy_from_slice(&4711_i32.to_ne_bytes());
        assert_eq!(format.read(&data), Some((9, 4711)));
        assert_eq!(format.read(&data[..38]), None, "too short");
        data[0] ^= 1;
        assert_eq!(format.read(&data), None, "another event");
    }

    #[test]
    fn what_is_missing_or_of_another_size_is_no_field() {
        assert_eq!(EventFormat::parse(SIGNAL, "sig", "nosuch"), None);
        assert_eq!(EventFormat::parse(SIGNAL, "comm[16]", "pid"), None);
        assert_eq!(EventFormat::parse("", "sig", "pid"), None);
    }

    #[test]
    fn the_layout_of_pages_is_read() {
        let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
            \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
            \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
            \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
        assert_eq!(PageFormat::parse(text), Some(PageFormat::usual()));
        assert_eq!(PageFormat::parse("nothing"), None);
    }
}
