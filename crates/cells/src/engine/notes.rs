//! What has been told of all cells, in one file that lines are added to: by it a daemon that comes
//! back knows which events it has told already.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cell::Told;
use crate::name::{CellName, ExecutableName};
use crate::record;

/// Beyond this the file is made short again.
const MOST_BYTES: usize = 16 << 20;

/// How far the life of one executable has been told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) cell: CellName,
    /// Tells a cell from an earlier one of the same name.
    pub(super) allocated: i64,
    pub(super) executable: ExecutableName,
    pub(super) told: Told,
}

#[derive(Debug)]
pub(super) struct Notes {
    path: PathBuf,
    /// Open once something was added.
    file: Option<File>,
    /// Added since it was last short.
    added: usize,
}

impl Notes {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            added: 0,
        }
    }

    /// What there is, in the order in which it was added.
    pub(super) fn read(path: &Path) -> Vec<Note> {
        let text = fs::read(path).unwrap_or_default();
        // The last line of a daemon that died may be torn.
        let lines = text.split(|byte| *byte == b'\n');
        lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    }

    pub(super) fn add(&mut self, note: &Note) -> io::Result<()> {
        if self.added > MOST_BYTES {
            self.shorten()?;
        }
        let line = line(note)?;
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::options().append(true).create(true).open(&self.path)?),
        };
        file.write_all(&line)?;
        self.added += line.len();
        Ok(())
    }

    /// Nothing is left to be told of.
    pub(super) fn clear(&mut self) {
        self.file = None;
        self.added = 0;
        // What stays is passed over by the next daemon.
        let _ = fs::remove_file(&self.path);
    }

    /// Leaves only these.
    pub(super) fn replace(&mut self, notes: &[Note]) -> io::Result<()> {
        let mut text = Vec::new();
        for note in notes {
            text.extend(line(note)?);
        }
        self.file = None;
        self.added = 0;
        record::replace(&self.path, &text)
    }

    /// Keeps the latest of each executable.
    fn shorten(&mut self) -> io::Result<()> {
        let mut latest = BTreeMap::new();
        for note in Self::read(&self.path) {
            latest.insert((note.cell.clone(), note.executable.clone()), note);
        }
        let notes: Vec<Note> = latest.into_values().collect();
        self.replace(&notes)
    }
}

fn line(note: &Note) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(note).map_err(io::Error::other)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(executable: &str, runs: u64) -> Note {
        Note {
            cell: "a".parse().unwrap(),
            allocated: 1,
            executable: executable.parse().unwrap(),
            told: Told { runs, ended: true },
        }
    }

    #[test]
    fn notes_are_added_and_shortened_and_a_torn_one_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("told");
        let mut notes = Notes::new(path.clone());
        for runs in 1..=3 {
            notes.add(&note("x", runs)).unwrap();
        }
        notes.add(&note("y", 1)).unwrap();
        assert_eq!(Notes::read(&path).len(), 4);
        notes.shorten().unwrap();
        notes.add(&note("x", 4)).unwrap();
        let there = Notes::read(&path);
        let runs: Vec<u64> = there.iter().map(|note| note.told.runs).collect();
        assert_eq!(runs, [3, 1, 4]);
        let mut text = fs::read(&path).unwrap();
        text.truncate(text.len() - 5);
        fs::write(&path, text).unwrap();
        assert_eq!(Notes::read(&path).len(), 2);
    }
}
