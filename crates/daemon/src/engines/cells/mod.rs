//! The cells engine: isolated executables.

mod events;

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use mainstay_cells::Cells;
use mainstay_cells::OpenError;
use mainstay_cells::zygote::ZygoteCommand;
use mainstay_journal::LogLimits;
use serde::{Deserialize, Serialize};

use super::journal::Journal;
use super::{BuildError, Startup};
use crate::config::{ByteSize, CgroupName, Config, DEFAULT_STATE, HiddenPath, Percent, Span};
use events::CellsToEvents;
pub use events::exit_status;

pub const RESTART_KEYS: &[&str] = &[
    "cells.cgroup",
    "cells.default_pids",
    "cells.hidden_paths",
    "cells.user_namespace",
    "cells.first_user",
    "cells.users",
];

/// `[cells]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CellsSection {
    /// Defaults to a cgroup that no other node on this machine uses.
    pub cgroup: Option<CgroupName>,
    pub stop_grace: Span,
    pub log_file_size: ByteSize,
    pub log_total_size: ByteSize,
    /// The share of the file system that all logs together leave free.
    pub log_keep_free: Percent,
    /// 0 is unlimited.
    pub default_pids: u32,
    pub hidden_paths: Vec<HiddenPath>,
    pub user_namespace: bool,
    pub first_user: u32,
    pub users: NonZeroU32,
}

impl Default for CellsSection {
    fn default() -> Self {
        Self {
            cgroup: None,
            stop_grace: Span(Duration::from_secs(10)),
            log_file_size: ByteSize(64 << 20),
            log_total_size: ByteSize(2 << 30),
            log_keep_free: Percent(10),
            default_pids: 4096,
            hidden_paths: Vec::new(),
            user_namespace: false,
            // Above the subordinate UIDs that distributions allocate.
            first_user: 2_000_000_000,
            users: NonZeroU32::new(65_536).unwrap_or(NonZeroU32::MIN),
        }
    }
}

impl CellsSection {
    pub(super) fn log_limits(&self) -> LogLimits {
        LogLimits {
            file_bytes: self.log_file_size.0,
            total_bytes: self.log_total_size.0,
        }
    }

    /// The directories beside the state that no cell may see: client configurations have private
    /// keys.
    fn hidden(&self) -> Vec<PathBuf> {
        let absolute = |name| {
            let path = std::env::var_os(name).map(PathBuf::from);
            path.filter(|path| path.is_absolute())
        };
        let home = absolute("HOME").map(|home| home.join(".config"));
        let configs = [
            absolute("XDG_CONFIG_HOME"),
            home,
            Some("/root/.config".into()),
        ];
        let mut hidden: Vec<PathBuf> = configs
            .into_iter()
            .flatten()
            .map(|config| config.join("mainstay"))
            .collect();
        // Where clients of Aurae keep theirs.
        let homes = [absolute("HOME"), Some("/root".into())];
        let homes = homes.into_iter().flatten();
        hidden.extend(homes.map(|home| home.join(".aurae")));
        hidden.push("/etc/aurae".into());
        hidden.extend(self.hidden_paths.iter().map(|path| path.0.clone()));
        hidden.sort();
        hidden.dedup();
        hidden
    }

    pub(super) fn cgroup(&self, state: &Path) -> String {
        match &self.cgroup {
            Some(name) => name.0.clone(),
            None => default_cgroup(state),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot adopt the cells of this node")]
struct CellsError(#[from] OpenError);

pub async fn build(startup: Startup<'_>, journal: &Journal) -> Result<Cells, BuildError> {
    let section = &startup.config.settings.cells;
    let settings = mainstay_cells::Settings {
        state: startup.state.path().to_owned(),
        hidden: section.hidden(),
        cgroup: section.cgroup(&startup.config.state),
        layout: None,
        zygote: ZygoteCommand::default(),
        logs: section.log_limits(),
        logs_keep_free: section.log_keep_free.0,
        grace: section.stop_grace.0,
        uid_range: (section.first_user, section.users.get()),
        user_namespace: section.user_namespace,
        default_pids: (section.default_pids != 0).then_some(section.default_pids),
        unconfined: false,
    };
    let events = CellsToEvents::new(journal.service_events.clone());
    Ok(Cells::open(settings, events).map_err(CellsError)?)
}

pub fn reload(cells: &Cells, _: &Config, new: &Config) {
    let section = &new.settings.cells;
    cells.set_grace(section.stop_grace.0);
    cells.set_log_limits(section.log_limits(), section.log_keep_free.0);
}

/// Cells run on without the daemon; the next one adopts them. The zygote ends: a daemon that is
/// executed in place of this one does not know it as its child.
pub async fn stop(cells: &Cells) {
    let cells = cells.clone();
    let _ = tokio::task::spawn_blocking(move || cells.hand_over()).await;
}

/// Two nodes on one machine have two state directories and must not share a cgroup.
fn default_cgroup(state: &Path) -> String {
    if state == Path::new(DEFAULT_STATE) {
        return "mainstay".to_owned();
    }
    let path = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
    let digest = mainstay_cells::digest(path.as_os_str().as_encoded_bytes());
    format!("mainstay-{digest:016x}")
}
