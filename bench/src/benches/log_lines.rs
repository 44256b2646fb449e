//! The log the log benchmarks read: lines of one length, so that bytes tell how many there are.

use std::path::{Path, PathBuf};

use anyhow::Result;
use mainstay_journal::{LogLimits, LogWriter, Stream, Timestamp};

pub const LOG: &str = "bench";
const LINE_TEXT: [u8; 100] = [b'x'; 100];
/// A line as a reader of the log gets it, with its newline.
pub const LINE_BYTES: u64 = LINE_TEXT.len() as u64 + 1;
/// A line as it stands in the file: before the text, its time and ` stdout F `.
pub const RECORD_BYTES: u64 = LINE_BYTES + Timestamp::TEXT_LEN as u64 + 10;

/// One file, however large: the peers know nothing of rotation.
const ONE_FILE: LogLimits = LogLimits {
    file_bytes: u64::MAX,
    total_bytes: u64::MAX,
};

/// The file of the log below `root`, on which the peers are set.
pub fn file(root: &Path) -> PathBuf {
    root.join(LOG).join("0000000001.log")
}

/// Opens the log and writes its first line: the file does not exist before, and `tail -f` needs it.
pub fn open(root: &Path) -> Result<LogWriter> {
    let mut writer = LogWriter::open(root, LOG, ONE_FILE)?;
    writer.push_line(Timestamp::now(), Stream::Stdout, &LINE_TEXT)?;
    writer.flush()?;
    Ok(writer)
}

/// Writes the log up to this number of lines as fast as possible, each with a timestamp of its own.
pub fn write(mut writer: LogWriter, lines: u64) -> Result<()> {
    for _ in 1..lines {
        writer.push_line(Timestamp::now(), Stream::Stdout, &LINE_TEXT)?;
    }
    Ok(writer.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_as_long_in_the_file_as_the_peers_are_told() {
        let root = tempfile::tempdir().unwrap();
        write(open(root.path()).unwrap(), 1000).unwrap();
        let written = std::fs::metadata(file(root.path())).unwrap().len();
        assert_eq!(written, 1000 * RECORD_BYTES);
    }
}
