//! The format of log files: one record per line, `<RFC 3339 time> stdout|stderr F|P <text>`.
//!
//! This is the log format of CRI. A file is nothing but such lines: it has no header and no version,
//! so that every log tool can read it, and the format does not change. `F` ends a logical line, `P`
//! marks a partial one that continues in the next record of the same stream. The further tag of
//! `F:N` says that the line had no newline.
//!
//! Parsing accepts every byte string and never fails; a line of another format is a record without
//! a time whose text is the whole line.

use crate::Timestamp;

/// The longest text of a record; longer text is split into partial records.
pub const MAX_TEXT: usize = 16 * 1024;

/// An upper bound of the prefix before the text of a record.
pub(crate) const MAX_HEADER: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub const BOTH: [Self; 2] = [Self::Stdout, Self::Stderr];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Stdout => 0,
            Self::Stderr => 1,
        }
    }
}

/// One line of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// `None` if the line is corrupt or of another format.
    pub time: Option<Timestamp>,
    pub stream: Stream,
    /// True if the text continues in the next record of the same stream.
    pub partial: bool,
    /// True if the line was written without a newline at its end.
    pub unterminated: bool,
    pub text: &'a [u8],
}

/// The tags of a line that was written without a newline.
const UNTERMINATED: &[u8] = b"F:N ";

/// Parses one line without its newline.
pub fn parse_line(line: &[u8]) -> Record<'_> {
    parse_strictly(line).unwrap_or(Record {
        time: None,
        stream: Stream::Stdout,
        partial: false,
        unterminated: false,
        text: line,
    })
}

/// Parses one line that may have its newline.
pub(crate) fn parse_ended(line: &[u8]) -> Record<'_> {
    parse_line(line.strip_suffix(b"\n").unwrap_or(line))
}

fn parse_strictly(line: &[u8]) -> Option<Record<'_>> {
    let (time, rest) = cut_time(line)?;
    let (stream, rest) = if let Some(rest) = rest.strip_prefix(b"stdout ") {
        (Stream::Stdout, rest)
    } else {
        (Stream::Stderr, rest.strip_prefix(b"stderr ")?)
    };
    let (partial, text) = match rest {
        [b'F', b' ', text @ ..] => (false, text),
        [b'P', b' ', text @ ..] => (true, text),
        // Some runtimes leave out the space before an empty text.
        b"F" => (false, &b""[..]),
        b"P" => (true, &b""[..]),
        // Further tags may follow the first, after colons.
        [b'F', b':', ..] => (false, cut_word(rest)?.1),
        [b'P', b':', ..] => (true, cut_word(rest)?.1),
        _ => return None,
    };
    Some(Record {
        time: Some(time),
        stream,
        partial,
        unterminated: rest.starts_with(UNTERMINATED),
        text,
    })
}

fn cut_time(line: &[u8]) -> Option<(Timestamp, &[u8])> {
    // Most lines are written here, with times of one width: no search for the space.
    if let Some((time, [b' ', rest @ ..])) = line.split_at_checked(Timestamp::TEXT_LEN)
        && let Some(time) = Timestamp::parse(time)
    {
        return Some((time, rest));
    }
    let (time, rest) = cut_word(line)?;
    Some((Timestamp::parse(time)?, rest))
}

/// Splits at the first space. The search is bounded, because a header word is short and a corrupt
/// line may be very long.
fn cut_word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = line
        .iter()
        .take(MAX_HEADER / 3)
        .position(|byte| *byte == b' ')?;
    Some((&line[..end], &line[end + 1..]))
}

/// Appends one record. `text` must not contain a newline.
pub(crate) fn write_record(
    out: &mut Vec<u8>,
    time: Timestamp,
    stream: Stream,
    partial: bool,
    text: &[u8],
) {
    Header::new(time, stream).write(out, partial, text);
}

/// The prefix of all records of one time and stream, formatted once.
struct Header([u8; HEADER_LEN]);

const HEADER_LEN: usize = Timestamp::TEXT_LEN + b" stdout F ".len();

impl Header {
    fn new(time: Timestamp, stream: Stream) -> Self {
        let mut bytes = [b' '; HEADER_LEN];
        let (head, rest) = bytes.split_at_mut(Timestamp::TEXT_LEN);
        head.copy_from_slice(&time.format());
        rest[1..7].copy_from_slice(stream.as_str().as_bytes());
        Self(bytes)
    }

    fn write(&mut self, out: &mut Vec<u8>, partial: bool, text: &[u8]) {
        self.0[HEADER_LEN - 2] = if partial { b'P' } else { b'F' };
        out.reserve(HEADER_LEN + text.len() + 1);
        out.extend_from_slice(&self.0);
        out.extend_from_slice(text);
        out.push(b'\n');
    }

    /// Writes a line with its newline, in one copy if it is short.
    fn write_ended(&mut self, out: &mut Vec<u8>, line: &[u8]) {
        if line.len() > MAX_TEXT {
            return self.write_pieces(out, &line[..line.len() - 1], false);
        }
        self.0[HEADER_LEN - 2] = b'F';
        out.reserve(HEADER_LEN + line.len());
        out.extend_from_slice(&self.0);
        out.extend_from_slice(line);
    }

    /// Writes a line without newlines, of any length.
    fn write_pieces(&mut self, out: &mut Vec<u8>, text: &[u8], unfinished: bool) {
        let mut pieces = text.chunks(MAX_TEXT).peekable();
        if text.is_empty() {
            self.write(out, unfinished, b"");
        }
        while let Some(piece) = pieces.next() {
            let goes_on = pieces.peek().is_some() || unfinished;
            self.write(out, goes_on, piece);
        }
    }
}

/// Appends a line as one record, or as several if it is long or contains newlines. With
/// `unfinished` the last record is partial too.
pub(crate) fn write_line(
    out: &mut Vec<u8>,
    time: Timestamp,
    stream: Stream,
    line: &[u8],
    unfinished: bool,
) {
    let mut header = Header::new(time, stream);
    let mut begin = 0;
    for end in memchr::memchr_iter(b'\n', line) {
        header.write_ended(out, &line[begin..=end]);
        begin = end + 1;
    }
    header.write_pieces(out, &line[begin..], unfinished);
}

/// Appends a line without newlines that was written without one at its end.
pub(crate) fn write_unterminated(out: &mut Vec<u8>, time: Timestamp, stream: Stream, text: &[u8]) {
    let mut header = Header::new(time, stream);
    let rest = text.len() % MAX_TEXT;
    let rest = if rest == 0 {
        text.len().min(MAX_TEXT)
    } else {
        rest
    };
    let (head, last) = text.split_at(text.len() - rest);
    if !head.is_empty() {
        header.write_pieces(out, head, true);
    }
    out.extend_from_slice(&header.0[..HEADER_LEN - b"F ".len()]);
    out.extend_from_slice(UNTERMINATED);
    out.extend_from_slice(last);
    out.push(b'\n');
}

/// Returns the length of the first line with its newline, or of all bytes if there is none.
pub(crate) fn line_len(bytes: &[u8]) -> usize {
    memchr::memchr(b'\n', bytes).map_or(bytes.len(), |end| end + 1)
}
