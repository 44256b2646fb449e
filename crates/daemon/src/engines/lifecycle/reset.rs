//! The wipe of a reset: a record orders it, and the next daemon follows the order before it
//! opens anything, so that no crash leaves a node half wiped.
//!
//! Only files below the state directory are wiped, on every platform; never a disk.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use mainstay_lifecycle::{ActorId, Sequences, TaskError};
use mainstay_records::{RecordError, sync_directory, write_durable};
use serde::{Deserialize, Serialize};

use crate::log::{AUDIT_LOG, DENIED_LOG};

/// A part of the node's state, by the name that clients use for partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Label {
    /// The identity and the services of the node: its CA and certificates, users, its services.
    State,
    /// Leftovers of workloads and of the past: cells, logs, events, images.
    Ephemeral,
}

impl Label {
    pub const ALL: [Self; 2] = [Self::State, Self::Ephemeral];

    /// The entries of the state directory, whether or not they exist.
    fn entries(self) -> &'static [&'static str] {
        match self {
            Self::State => &[
                "pki",
                "client.yaml",
                "configuration",
                "services",
                "users",
                "schedule",
            ],
            Self::Ephemeral => &["cells", "logs", "events", "images", "pods", "uploads"],
        }
    }
}

/// Below `logs`: a reset must not remove the traces of who called it.
const KEPT_LOGS: &[&str] = &[AUDIT_LOG, DENIED_LOG];

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::State => "STATE",
            Self::Ephemeral => "EPHEMERAL",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown label {label:?}; the labels of this node are STATE and EPHEMERAL")]
pub struct UnknownLabel {
    label: String,
}

impl FromStr for Label {
    type Err = UnknownLabel;

    fn from_str(text: &str) -> Result<Self, UnknownLabel> {
        let found = Self::ALL
            .into_iter()
            .find(|label| label.to_string() == text);
        found.ok_or_else(|| UnknownLabel {
            label: text.chars().take(64).collect(),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetOptions {
    pub graceful: bool,
    pub reboot: bool,
    pub labels: Vec<Label>,
}

/// One entry of the state directory, with everything below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub label: Label,
    pub path: PathBuf,
    pub files: u64,
    pub bytes: u64,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            label,
            path,
            files,
            bytes,
        } = self;
        let files = match files {
            1 => "1 file".to_owned(),
            files => format!("{files} files"),
        };
        write!(f, "{label} {} ({files}, {bytes} bytes)", path.display())
    }
}

/// Lists what a reset of these labels would wipe now. Blocks on the disk.
pub fn list(state: &Path, labels: &[Label]) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for label in Label::ALL.iter().filter(|label| labels.contains(label)) {
        for path in paths(state, *label)? {
            let mut entry = Entry {
                label: *label,
                path,
                files: 0,
                bytes: 0,
            };
            let path = entry.path.clone();
            measure(&path, &mut entry)?;
            entries.push(entry);
        }
    }
    Ok(entries)
}

fn paths(state: &Path, label: Label) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for name in label.entries() {
        let path = state.join(name);
        if *name == "logs" && path.is_dir() {
            for entry in fs::read_dir(&path)? {
                let entry = entry?;
                let kept = KEPT_LOGS.iter().any(|kept| entry.file_name() == *kept);
                if !kept {
                    paths.push(entry.path());
                }
            }
        } else if fs::symlink_metadata(&path).is_ok() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Counts what is below a path. Links are counted, not followed.
fn measure(path: &Path, entry: &mut Entry) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        // The node runs while it is measured.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !metadata.is_dir() {
        entry.files += 1;
        entry.bytes += metadata.len();
        return Ok(());
    }
    let children = match fs::read_dir(path) {
        Ok(children) => children,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for child in children {
        measure(&child?.path(), entry)?;
    }
    Ok(())
}

/// The order to wipe, for the next daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WipeOrder {
    labels: Vec<Label>,
    actor: ActorId,
}

const ORDER_VERSION: u64 = 1;
/// The directory of the records of sequences.
pub const DIRECTORY: &str = "lifecycle";
const ORDER: &str = "lifecycle/wipe.json";

impl WipeOrder {
    pub fn new(options: &ResetOptions, actor: &ActorId) -> Self {
        Self {
            labels: options.labels.clone(),
            actor: actor.clone(),
        }
    }

    pub fn wipes(&self, label: Label) -> bool {
        self.labels.contains(&label)
    }

    pub async fn write(self, state: &Path) -> Result<(), TaskError> {
        let path = state.join(ORDER);
        let written = tokio::task::spawn_blocking(move || {
            let record = mainstay_records::encode(&self, ORDER_VERSION)?;
            write_durable(&path, &record, 0o600)
        });
        Ok(written.await??)
    }
}

/// The entries that the order of a reset has removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wiped {
    pub actor: ActorId,
    pub entries: Vec<Entry>,
}

#[derive(Debug, thiserror::Error)]
pub enum WipeError {
    #[error("cannot read the order of a reset")]
    Order(#[from] RecordError),
    #[error("cannot wipe state directory {}", path.display())]
    Failed { path: PathBuf, source: io::Error },
}

/// Follows the order of a reset, if there is one and its sequence has neither failed nor been
/// preempted. The caller holds the lock of the state directory and has opened nothing in it. After a
/// crash the next daemon continues.
pub fn follow_order(state: &Path) -> Result<Option<Wiped>, WipeError> {
    let order: WipeOrder = match mainstay_records::read(&state.join(ORDER), ORDER_VERSION) {
        Ok(order) => order,
        Err(RecordError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let is_valid = is_in_force(state, &order.actor);
    let wipe = || -> io::Result<Vec<Entry>> {
        let entries = match is_valid {
            true => list(state, &order.labels)?,
            false => Vec::new(),
        };
        for entry in &entries {
            remove(&entry.path)?;
        }
        sync_directory(state)?;
        fs::remove_file(state.join(ORDER))?;
        sync_directory(&state.join(DIRECTORY))?;
        Ok(entries)
    };
    let entries = wipe().map_err(|source| WipeError::Failed {
        path: state.to_owned(),
        source,
    })?;
    Ok(is_valid.then_some(Wiped {
        actor: order.actor,
        entries,
    }))
}

/// Returns whether the sequence that gave an order is the last one, and did not fail since.
fn is_in_force(state: &Path, actor: &ActorId) -> bool {
    let record = Sequences::last(&state.join(DIRECTORY));
    record.is_ok_and(|record| {
        let has_failed = record.ended.is_some_and(|ended| ended.failure.is_some());
        record.actor == *actor && !has_failed
    })
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> tempfile::TempDir {
        let state = tempfile::tempdir().unwrap();
        for file in [
            "pki/ca.key",
            "client.yaml",
            "cells/web/cell.json",
            "logs/mainstay/1.log",
            "logs/audit/1.log",
            "events/1.seg",
            "version.json",
            "lifecycle/sequence.json",
            "slots/a/mainstay",
        ] {
            let path = state.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "12345").unwrap();
        }
        state
    }

    fn exists(state: &tempfile::TempDir, file: &str) -> bool {
        state.path().join(file).exists()
    }

    async fn order(state: &Path, labels: &[Label]) {
        let options = ResetOptions {
            graceful: true,
            reboot: true,
            labels: labels.to_vec(),
        };
        let actor = ActorId::random();
        record(state, &actor, "null");
        WipeOrder::new(&options, &actor).write(state).await.unwrap();
    }

    /// The record of a reset that has ended like this.
    fn record(state: &Path, actor: &ActorId, ended: &str) {
        let record = format!(
            "{{\"version\":1,\"sequence\":\"reset\",\"actor\":\"{actor}\",\"requested_by\":\"root\",\
             \"phases\":[],\"ended\":{ended}}}"
        );
        fs::write(state.join("lifecycle/sequence.json"), record).unwrap();
    }

    #[tokio::test]
    async fn the_order_of_a_reset_that_failed_or_was_preempted_is_dropped() {
        let state = state();
        let failure = r#"{"failure":{"kind":"failed","reason":"no"},"published":true}"#;
        for (other, ended) in [(false, failure), (true, "null")] {
            order(state.path(), &Label::ALL).await;
            let by_order = || fs::read(state.path().join("lifecycle/wipe.json"));
            let text = String::from_utf8(by_order().unwrap()).unwrap();
            let order: serde_json::Value = serde_json::from_str(&text).unwrap();
            let actor = match other {
                true => ActorId::random(),
                false => order["actor"].as_str().unwrap().parse().unwrap(),
            };
            record(state.path(), &actor, ended);
            assert_eq!(follow_order(state.path()).unwrap(), None);
            assert!(exists(&state, "pki/ca.key") && by_order().is_err());
        }
    }

    #[tokio::test]
    async fn an_order_is_followed_once_and_keeps_the_audit_log() {
        let state = state();
        assert_eq!(follow_order(state.path()).unwrap(), None);
        order(state.path(), &Label::ALL).await;
        let before = list(state.path(), &Label::ALL).unwrap();
        let wiped = follow_order(state.path()).unwrap().unwrap();
        assert_eq!(wiped.entries, before, "what is listed is wiped");
        assert_eq!(wiped.entries.len(), 5, "{:?}", wiped.entries);
        for gone in ["pki", "client.yaml", "cells", "logs/mainstay", "events"] {
            assert!(!exists(&state, gone), "{gone}");
        }
        for kept in ["logs/audit/1.log", "version.json", "slots/a/mainstay"] {
            assert!(exists(&state, kept), "{kept}");
        }
        assert_eq!(follow_order(state.path()).unwrap(), None);
    }

    #[tokio::test]
    async fn a_label_that_is_not_named_stays_and_links_are_not_followed() {
        let state = state();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("file"), "x").unwrap();
        std::os::unix::fs::symlink(outside.path(), state.path().join("cells/link")).unwrap();
        order(state.path(), &[Label::Ephemeral]).await;
        follow_order(state.path()).unwrap().unwrap();
        assert!(exists(&state, "pki/ca.key") && !exists(&state, "cells"));
        assert!(outside.path().join("file").exists());
    }

    #[test]
    fn an_unknown_label_is_named() {
        let error = "META".parse::<Label>().unwrap_err().to_string();
        assert!(
            error.contains("META") && error.contains("EPHEMERAL"),
            "{error}"
        );
    }
}
