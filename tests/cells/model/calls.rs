//! The calls of the model and their answers.

use std::collections::BTreeMap;

use super::programs::{How, Program};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Call {
    Allocate {
        cell: String,
    },
    Start {
        cell: String,
        executable: &'static str,
        program: Program,
    },
    Stop {
        cell: String,
        executable: &'static str,
        grace_ms: u32,
    },
    /// Ends all executables: not in one moment, so it is judged in parts.
    StopAll {
        cell: String,
        grace_ms: u32,
    },
    /// The part of the call above that finds the cell.
    Find {
        cell: String,
    },
    /// The part of it that ends one executable, if that is there.
    StopPart {
        cell: String,
        executable: &'static str,
    },
    Free {
        cell: String,
    },
    List {
        cell: String,
    },
    /// Not a call: the daemon was killed and started again.
    Crash,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Started {
        pid: i32,
    },
    Listed(Vec<SeenCell>),
    NoCell,
    CellExists,
    Running,
    NoExecutable,
    NoProgram,
    Forbidden,
    /// The daemon died before there was one.
    None,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenCell {
    pub(super) name: String,
    pub(super) executables: BTreeMap<String, SeenExecutable>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SeenExecutable {
    pub(super) program: Program,
    pub(super) pid: i32,
    pub(super) runs: u64,
    /// `None` while it runs.
    pub(super) end: Option<How>,
}
