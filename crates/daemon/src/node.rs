//! The value every service shares: the engines of this node and facts about it.

use std::path::PathBuf;

use mainstay_node::mounts::SpaceSurvey;

use crate::config::RunningConfig;
use crate::configuration::Changes;
use crate::engines::Engines;
use crate::workloads::Workloads;

/// Facts about the binary.
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
    pub state: PathBuf,
    pub config: RunningConfig,
    /// Changes of the configuration.
    pub changes: Changes,
    pub space: SpaceSurvey,
    pub engines: Engines,
    /// Everything that runs on the node, whichever engine runs it.
    pub workloads: Workloads,
}
