use std::path::PathBuf;
use std::time::Duration;

/// Default bound on connecting and on one answer.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Selects the node to connect to and the nodes to call through it.
#[derive(Debug, Clone)]
pub struct Options {
    /// Client configuration file; `None` selects the user's own, then the local node's.
    pub config_file: Option<PathBuf>,
    /// State directory of a node on this machine, whose `client.yaml` is the last resort.
    pub local_state: Option<PathBuf>,
    /// Context of the client configuration; `None` selects its current one.
    pub context: Option<String>,
    /// Endpoints to try in order, instead of the context's.
    pub endpoints: Vec<String>,
    /// Nodes that calls are forwarded to, instead of the context's.
    pub nodes: Vec<String>,
    /// Bound on connecting to one endpoint and on one answer.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            config_file: None,
            local_state: None,
            context: None,
            endpoints: Vec::new(),
            nodes: Vec::new(),
            timeout: DEFAULT_TIMEOUT,
        }
    }
}
