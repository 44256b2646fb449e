//! The errors of a collection: listed in the archive, and the exit code.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::failure::{Exit, Failure};

/// The results of all readings of all nodes.
#[derive(Debug, Default)]
pub(super) struct Errors {
    entries: Vec<Entry>,
    /// Nodes that answered at least once.
    answered: BTreeSet<String>,
}

#[derive(Debug)]
struct Entry {
    node: String,
    reading: String,
    failure: Failure,
    /// Not an error: the machine has nothing of the kind.
    absent: bool,
}

impl Errors {
    pub(super) fn answer(&mut self, node: &str) {
        if !self.answered.contains(node) {
            self.answered.insert(node.to_owned());
        }
    }

    pub(super) fn add(&mut self, node: &str, reading: &str, failure: Failure, absent: bool) {
        self.entries.push(Entry {
            node: node.to_owned(),
            reading: reading.to_owned(),
            failure,
            absent,
        });
    }

    pub(super) fn answered(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Readings that failed, without those that the machine does not have.
    pub(super) fn count(&self) -> usize {
        self.entries.iter().filter(|entry| !entry.absent).count()
    }

    /// Nodes that did not answer once.
    pub(super) fn failed_nodes(&self) -> BTreeSet<&str> {
        let nodes = self.entries.iter().map(|entry| entry.node.as_str());
        nodes
            .filter(|node| !self.answered.contains(*node))
            .collect()
    }

    pub(super) fn into_first_failure(self) -> Failure {
        let mut entries = self.entries.into_iter();
        let first = entries.find(|entry| !entry.absent);
        first.map_or_else(
            || Failure::new(Exit::Failed, "no node answered"),
            |entry| entry.failure,
        )
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for entry in &self.entries {
            let Entry { node, reading, .. } = entry;
            let kind = if entry.absent { "absent" } else { "failed" };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{kind}: {node}: {reading}: {}", entry.failure.message);
        }
        if text.is_empty() {
            text.push_str("no errors\n");
        }
        text
    }
}
