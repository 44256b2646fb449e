//! The event cursor: how far the events of each executable have been published.
//!
//! One file for all cells, to which a line is appended after each publish; a restarted daemon reads
//! it to publish no event twice.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use mainstay_records::RecordError;
use serde::{Deserialize, Serialize};

use super::cell::Published;
use crate::name::{CellName, ExecutableName};

/// The format version of each line.
const VERSION: u64 = 1;
/// Beyond this the file is compacted.
const MAX_APPENDED_BYTES: usize = 16 << 20;

/// How far the events of one executable have been published.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CursorEntry {
    pub(super) cell: CellName,
    /// Distinguishes a cell from an earlier one of that name.
    pub(super) allocated: i64,
    pub(super) executable: ExecutableName,
    /// The field name is that of the first version.
    #[serde(rename = "told")]
    pub(super) published: Published,
}

#[derive(Debug)]
pub(super) struct EventCursor {
    path: PathBuf,
    /// Opened by the first append.
    file: Option<File>,
    /// Bytes appended since the last compaction.
    appended: usize,
}

impl EventCursor {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            appended: 0,
        }
    }

    /// Reads all entries, in the order of their appends.
    pub(super) fn read(path: &Path) -> Vec<CursorEntry> {
        let text = fs::read(path).unwrap_or_default();
        let mut newer = None;
        let mut entries = Vec::new();
        for line in text.split(|byte| *byte == b'\n') {
            match mainstay_records::decode(path, line, VERSION) {
                Ok(entry) => entries.push(entry),
                Err(error @ RecordError::Newer { .. }) => newer = Some(error),
                // A killed daemon may have left a torn last line.
                Err(_) => {}
            }
        }
        if let Some(error) = newer {
            tracing::warn!(%error, "cannot read the event cursor; events may be published twice");
        }
        entries
    }

    pub(super) fn append(&mut self, entry: &CursorEntry) -> io::Result<()> {
        if self.appended > MAX_APPENDED_BYTES {
            self.compact()?;
        }
        let line = line(entry)?;
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::options().append(true).create(true).open(&self.path)?),
        };
        file.write_all(&line)?;
        self.appended += line.len();
        Ok(())
    }

    /// Removes all entries; there is no cell left. An open file stays, empty, for the next cell.
    pub(super) fn clear(&mut self) {
        self.appended = 0;
        let emptied = self.file.as_ref().map(|file| file.set_len(0));
        if !matches!(emptied, Some(Ok(()))) {
            self.file = None;
            // Stale entries are ignored by the next daemon.
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Replaces all entries.
    pub(super) fn replace(&mut self, entries: &[CursorEntry]) -> io::Result<()> {
        let mut text = Vec::new();
        for entry in entries {
            text.extend(line(entry)?);
        }
        self.file = None;
        self.appended = 0;
        mainstay_records::write_runtime(&self.path, &text)
    }

    /// Keeps the latest entry of each executable.
    fn compact(&mut self) -> io::Result<()> {
        let mut latest = BTreeMap::new();
        for entry in Self::read(&self.path) {
            latest.insert((entry.cell.clone(), entry.executable.clone()), entry);
        }
        let entries: Vec<CursorEntry> = latest.into_values().collect();
        self.replace(&entries)
    }
}

fn line(entry: &CursorEntry) -> io::Result<Vec<u8>> {
    let mut line = mainstay_records::encode(entry, VERSION)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(executable: &str, runs: u64) -> CursorEntry {
        CursorEntry {
            cell: "a".parse().unwrap(),
            allocated: 1,
            executable: executable.parse().unwrap(),
            published: Published { runs, ended: true },
        }
    }

    #[test]
    fn entries_are_appended_and_compacted_and_a_torn_line_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("told");
        let mut cursor = EventCursor::new(path.clone());
        for runs in 1..=3 {
            cursor.append(&entry("x", runs)).unwrap();
        }
        cursor.append(&entry("y", 1)).unwrap();
        assert_eq!(EventCursor::read(&path).len(), 4);
        cursor.compact().unwrap();
        cursor.append(&entry("x", 4)).unwrap();
        let entries = EventCursor::read(&path);
        let runs: Vec<u64> = entries.iter().map(|entry| entry.published.runs).collect();
        assert_eq!(runs, [3, 1, 4]);
        let mut text = fs::read(&path).unwrap();
        text.truncate(text.len() - 5);
        fs::write(&path, text).unwrap();
        assert_eq!(EventCursor::read(&path).len(), 2);
    }
    #[test]
    fn the_formats_of_earlier_builds_are_read() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures");
        for directory in ["unversioned", "v1"] {
            let entries = EventCursor::read(&fixtures.join(directory).join("told"));
            assert_eq!(entries.len(), 8);
            let last = &entries[7];
            assert_eq!(last.executable.as_str(), "server");
            assert_eq!(
                last.published,
                Published {
                    runs: 1,
                    ended: true
                }
            );
        }
        let golden = fixtures.join("v1/told");
        let entries = EventCursor::read(&golden);
        let lines: Vec<u8> = entries.iter().flat_map(|one| line(one).unwrap()).collect();
        assert_eq!(lines, fs::read(golden).unwrap());
    }
}
