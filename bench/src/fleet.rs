//! Many nodes of one authority, each a process of its own.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use tempfile::TempDir;

use crate::client::Credentials;
use crate::server::Server;

pub struct Fleet {
    /// Which clients talk to, and which forwards.
    pub entry: Server,
    pub nodes: Vec<Server>,
    pub credentials: Credentials,
    // Declared last: the directory goes when the nodes are gone.
    _state: TempDir,
}

impl Fleet {
    pub async fn start(binary: &Path, count: usize) -> Result<Self> {
        let state = TempDir::with_prefix("mainstay-bench-")?;
        let first = state.path().join("entry");
        std::fs::create_dir(&first)?;
        let entry = Server::node(binary, &first).await?;
        let mut nodes = Vec::new();
        for number in 0..count {
            let own = state.path().join(format!("n{number}"));
            certify(binary, &first, &own, number)?;
            nodes.push(Server::node(binary, &own).await?);
        }
        Ok(Self {
            entry,
            nodes,
            credentials: Credentials::of(&first)?,
            _state: state,
        })
    }

    /// The nodes as a caller names them.
    pub fn names(&self) -> Vec<String> {
        let name = |node: &Server| node.address().to_string();
        self.nodes.iter().map(name).collect()
    }
}

fn certify(binary: &Path, authority: &Path, state: &Path, number: usize) -> Result<()> {
    let status = Command::new(binary)
        .args(["pki", "node", "--san", "127.0.0.1", "--name"])
        .arg(format!("n{number}"))
        .arg("--ca")
        .arg(authority.join("pki"))
        .arg("--out")
        .arg(state.join("pki"))
        .stderr(std::process::Stdio::null())
        .status()?;
    ensure!(status.success(), "no certificate for node {number}");
    Ok(())
}
