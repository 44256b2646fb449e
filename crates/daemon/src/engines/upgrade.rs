//! Upgrade and rollback: the two slots, the keys that sign images, and the bounds on what is
//! received.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use mainstay_slots::{KeyError, Received, Request, Slots, SlotsError, StateFormats, VerifyingKey};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::{BuildError, Startup};
use crate::config::{Config, Span};
use crate::state::FORMAT_VERSION;

pub const RESTART_KEYS: &[&str] = &[];

/// A key file is small.
const MAX_KEY_BYTES: u64 = 64 << 10;
const PEM_START: &str = "-----BEGIN";

/// `[upgrade]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UpgradeSection {
    /// Public keys, PEM text or absolute paths: an image needs a signature by one of them.
    pub keys: Vec<String>,
    /// The time within which a new version must be healthy.
    pub deadline: Span,
}

impl Default for UpgradeSection {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            deadline: Span(Duration::from_secs(60)),
        }
    }
}

/// The reason images cannot be verified.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeKeyError {
    #[error("cannot read upgrade key {}", path.display())]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("upgrade.keys has a value that is neither PEM nor an absolute path")]
    NotAbsolute,
    #[error("upgrade.keys has an invalid key")]
    Invalid(#[source] KeyError),
}

/// The reason an image is not received.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    #[error(transparent)]
    Key(#[from] UpgradeKeyError),
    #[error(transparent)]
    Slots(#[from] SlotsError),
    #[error("another upgrade image is being {0}; try again in a moment")]
    Busy(&'static str),
    #[error("reading the upgrade image failed; the node's log says why")]
    Panicked,
}

/// The slots of the node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Upgrade {
    pub slots: Slots,
    section: Arc<ArcSwap<UpgradeSection>>,
    /// Held while an image is verified.
    verifying: Arc<Mutex<()>>,
    /// Held while an image is uploaded.
    pub uploading: Arc<Mutex<()>>,
}

impl Upgrade {
    /// Reads and verifies the image at `path`, and extracts its binary. An upload is removed
    /// afterwards. One image at a time: each takes time and room on the disk.
    pub async fn receive(&self, path: PathBuf, force: bool) -> Result<Received, ReceiveError> {
        let turn = Arc::clone(&self.verifying).try_lock_owned();
        let turn = turn.map_err(|_| ReceiveError::Busy("verified"))?;
        let slots = self.slots.clone();
        let section = self.section.load_full();
        let received = tokio::task::spawn_blocking(move || {
            // Also when the caller is gone.
            let _turn = turn;
            let keys = keys(&section.keys)?;
            let received = slots.receive(&path, &keys, formats(), force);
            slots.remove_upload(&path);
            Ok(received?)
        });
        received.await.unwrap_or(Err(ReceiveError::Panicked))
    }

    /// The wish for a switch by the sequence of `actor_id`.
    pub fn request(&self, actor_id: String, staged: bool) -> Request {
        let deadline = self.section.load().deadline.0;
        Request {
            actor_id,
            staged,
            // A whole second at least.
            deadline_seconds: deadline.as_secs().max(1),
        }
    }
}

/// The state formats that both the running and the next version must understand.
pub fn formats() -> StateFormats {
    StateFormats {
        // The directory was opened by this build, which has brought it to this format.
        on_disk: FORMAT_VERSION,
        supported: FORMAT_VERSION,
    }
}

fn keys(texts: &[String]) -> Result<Vec<VerifyingKey>, UpgradeKeyError> {
    texts.iter().map(|text| key(text)).collect()
}

fn key(text: &str) -> Result<VerifyingKey, UpgradeKeyError> {
    use std::io::Read as _;
    let trimmed = text.trim_start();
    if trimmed.starts_with(PEM_START) {
        return VerifyingKey::from_pem(trimmed).map_err(UpgradeKeyError::Invalid);
    }
    let path = Path::new(text);
    if !path.is_absolute() {
        return Err(UpgradeKeyError::NotAbsolute);
    }
    let mut pem = String::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(MAX_KEY_BYTES).read_to_string(&mut pem));
    read.map_err(|source| UpgradeKeyError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    VerifyingKey::from_pem(&pem).map_err(UpgradeKeyError::Invalid)
}

pub async fn build(startup: Startup<'_>) -> Result<Upgrade, BuildError> {
    let section = startup.config.settings.upgrade.clone();
    // A key that cannot be used is found at the start, not at the next upgrade.
    keys(&section.keys)?;
    Ok(Upgrade {
        slots: Slots::of(startup.state.path()),
        section: Arc::new(ArcSwap::from_pointee(section)),
        verifying: Arc::default(),
        uploading: Arc::default(),
    })
}

pub fn reload(upgrade: &Upgrade, _: &Config, new: &Config) {
    // Keys are read with each image; a wrong one refuses it.
    upgrade
        .section
        .store(Arc::new(new.settings.upgrade.clone()));
}

pub async fn stop(_: &Upgrade) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_text_or_absolute_paths() {
        assert!(matches!(
            key("release.pub"),
            Err(UpgradeKeyError::NotAbsolute)
        ));
        assert!(matches!(
            key("/none.pub"),
            Err(UpgradeKeyError::Unreadable { .. })
        ));
        assert!(matches!(
            key("-----BEGIN X-----"),
            Err(UpgradeKeyError::Invalid(_))
        ));
        assert!(matches!(key("/dev/null"), Err(UpgradeKeyError::Invalid(_))));
    }
}
