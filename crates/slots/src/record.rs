//! The slot record: what is in the slots, which of them runs, and whether one is on trial.
//!
//! Every build that a node may start reads this record before anything else, also an older one that
//! the package manager left in place. Its format therefore only gains fields.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Binary, Digest};

/// The format version of the record.
pub(crate) const RECORD_VERSION: u64 = 1;

/// One of the two slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SlotName {
    /// `slots/a`
    A,
    /// `slots/b`
    B,
}

impl SlotName {
    /// The slot that is not this one.
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// The name of its directory.
    pub fn directory(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }
}

impl fmt::Display for SlotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "A",
            Self::B => "B",
        })
    }
}

/// The source of a slot's binary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Origin {
    /// The binary that was installed on the machine.
    Installed,
    /// An upgrade image.
    Image {
        /// The digest of its manifest.
        manifest: Digest,
    },
}

/// The binary in a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Digest, size and build facts.
    #[serde(flatten)]
    pub binary: Binary,
    /// Its source.
    pub origin: Origin,
    /// The time it was written, RFC 3339.
    pub written: String,
}

/// The installed binary as it was when it last mattered, to notice that the package manager has
/// replaced it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installed {
    /// Its digest.
    pub digest: Digest,
    /// Device, inode, size and time of change: equal means unchanged, without reading it.
    pub identity: String,
}

/// The reason of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SwitchKind {
    /// To a new binary.
    Upgrade,
    /// To the binary before.
    Rollback,
}

impl fmt::Display for SwitchKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Upgrade => "upgrade",
            Self::Rollback => "rollback",
        })
    }
}

/// A slot that is to prove itself before it becomes the current one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The slot to start.
    pub slot: SlotName,
    /// Starts that remain. Counted down before a start, so that a trial that ends with the whole
    /// machine is not repeated.
    pub tries_left: u32,
    /// The reason.
    pub kind: SwitchKind,
    /// The sequence that asked for it.
    pub actor_id: String,
    /// True if the switch waits for the next start of the node.
    pub staged: bool,
    /// The time within which the daemon must be healthy.
    pub deadline_seconds: u64,
    /// The process that has verified the binary when it recorded the trial. If the same process
    /// executes the trial, it does so a moment later, and the API waits for it.
    #[serde(default)]
    pub verified_by: String,
}

/// The result of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "result")]
pub enum Outcome {
    /// The slot is the current one.
    Kept,
    /// The slot failed, the one before runs again.
    Returned {
        /// The reason, for people.
        reason: String,
    },
}

/// The last switch that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// The trial as it was.
    pub trial: Trial,
    /// The version before.
    pub from: String,
    /// The version on trial.
    pub to: String,
    /// The result.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The time of the result, RFC 3339.
    pub time: String,
    /// True once a daemon has reported it.
    #[serde(default)]
    pub reported: bool,
}

/// The slot record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotRecord {
    /// The slot that the node runs, unless a trial is due.
    pub current: SlotName,
    /// The content of slot A.
    pub a: Option<Content>,
    /// The content of slot B.
    pub b: Option<Content>,
    /// The binary outside the slots.
    pub installed: Option<Installed>,
    /// The trial that is due or running.
    pub trial: Option<Trial>,
    /// The last switch that has ended.
    pub last: Option<Switch>,
}

impl SlotRecord {
    /// The content of a slot.
    pub fn content(&self, slot: SlotName) -> Option<&Content> {
        match slot {
            SlotName::A => self.a.as_ref(),
            SlotName::B => self.b.as_ref(),
        }
    }

    pub(crate) fn content_mut(&mut self, slot: SlotName) -> &mut Option<Content> {
        match slot {
            SlotName::A => &mut self.a,
            SlotName::B => &mut self.b,
        }
    }

    /// The version in a slot; `unknown` if there is none.
    pub fn version(&self, slot: SlotName) -> String {
        let content = self.content(slot);
        content.map_or_else(
            || "unknown".to_owned(),
            |it| it.binary.facts.version.clone(),
        )
    }

    /// Ends the trial.
    pub(crate) fn end_trial(&mut self, outcome: Outcome, time: String) {
        let Some(trial) = self.trial.take() else {
            return;
        };
        let (from, to) = (self.version(self.current), self.version(trial.slot));
        if outcome == Outcome::Kept {
            self.current = trial.slot;
        }
        self.last = Some(Switch {
            trial,
            from,
            to,
            outcome,
            time,
            reported: false,
        });
    }
}
