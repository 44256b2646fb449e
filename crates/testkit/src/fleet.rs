use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use tonic::Request;

use crate::{TestNode, TestNodeBuilder, binary};

/// The configuration of a node that forwards to any address, not only to its peers.
pub const ANY_TARGET: &str = "[forwarding]\ntargets = 'any'\n";

/// Nodes of one certificate authority, each on a port of its own; the first one forwards to all
/// others, which are its peers.
pub struct TestFleet {
    pub nodes: Vec<TestNode>,
}

impl TestFleet {
    pub fn start(count: usize) -> Self {
        Self::with_config(count, "")
    }

    /// Starts a fleet whose first node forwards to any address.
    pub fn to_anywhere(count: usize) -> Self {
        Self::with_config(count, ANY_TARGET)
    }

    /// Starts a fleet with this configuration on its first node.
    pub fn with_config(count: usize, config: &str) -> Self {
        Self::first(TestNode::builder().config(config), &binary(), count)
    }

    /// Starts a fleet of this binary.
    pub fn of_program(program: &Path, count: usize) -> Self {
        Self::first(TestNode::builder().config(ANY_TARGET), program, count)
    }

    fn first(builder: TestNodeBuilder, program: &Path, count: usize) -> Self {
        let first = builder.program(program).start();
        let mut fleet = Self { nodes: vec![first] };
        for number in 1..count {
            fleet.nodes.push(fleet.join(&format!("n{number}")));
        }
        if count > 1 {
            fleet.add_peers();
        }
        fleet
    }

    /// Lists the other nodes in the configuration of the first one.
    fn add_peers(&self) {
        let mut config = self.peers();
        config.insert_str(
            0,
            &std::fs::read_to_string(self.nodes[0].config_file()).unwrap(),
        );
        self.nodes[0].reload(&config);
    }

    /// The section of the configuration that lists all nodes but the first as its peers.
    pub fn peers(&self) -> String {
        let mut section = "\n[peers]\n".to_owned();
        for (number, node) in self.nodes.iter().enumerate().skip(1) {
            let _ = writeln!(section, "n{number} = '{}'", node.listen());
        }
        section
    }

    /// Starts a further node with a certificate from `mainstay pki node`. It is not added to
    /// `nodes`.
    pub fn join(&self, name: &str) -> TestNode {
        let first = &self.nodes[0];
        let builder = TestNode::builder().program(&first.program);
        let pki = builder.state().join("pki");
        let arguments = ["pki", "node", "--san", "127.0.0.1", "--name", name, "--out"];
        let arguments = [&arguments[..], &[pki.to_str().unwrap()]].concat();
        first.cli().run(arguments).ok();
        builder.start()
    }

    /// The addresses by which callers name the nodes.
    pub fn names(&self) -> Vec<String> {
        self.nodes
            .iter()
            .map(|node| node.listen().to_string())
            .collect()
    }

    /// The addresses as one argument of `-n`.
    pub fn list(&self) -> String {
        self.names().join(",")
    }
}

/// A request for these nodes.
pub fn to_nodes<T, N: AsRef<str>>(message: T, nodes: impl IntoIterator<Item = N>) -> Request<T> {
    let mut request = Request::new(message);
    for node in nodes {
        let value = node.as_ref().parse().unwrap();
        request.metadata_mut().append("nodes", value);
    }
    request
}

/// An address on which nothing listens.
pub fn dead_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}
