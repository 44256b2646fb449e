//! What every service shares: the engines of this node and what is known of it.

use std::path::PathBuf;

use arc_swap::ArcSwap;
use mainstay_cells::Cells;
use mainstay_containers::Containers;
use mainstay_journal::EventStore;
use mainstay_journal::LogStore;
use mainstay_node::Platform;
use mainstay_node::mounts::SpaceSurvey;

/// What the binary knows of its own making.
#[derive(Debug, Clone)]
pub struct Build {
    /// Without a leading `v`.
    pub version: String,
    pub sha: String,
    /// RFC 3339.
    pub built: String,
    /// The compiler's version.
    pub rust: String,
    /// As other node APIs name it: `amd64`, `arm64`.
    pub arch: String,
}

#[derive(Debug)]
pub struct Node {
    pub build: Build,
    pub platform: Platform,
    pub state: PathBuf,
    pub config_file: Option<PathBuf>,
    pub events: EventStore,
    pub logs: LogStore,
    pub space: SpaceSurvey,
    /// Another one after the configuration has changed.
    pub containers: ArcSwap<Containers>,
    pub cells: Cells,
}
