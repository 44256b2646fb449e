use std::net::SocketAddr;

use tonic::Request;

use super::TestNode;

/// Nodes of one authority, each on an address of its own; the first one forwards.
pub struct TestFleet {
    pub nodes: Vec<TestNode>,
}

impl TestFleet {
    pub fn start(count: usize) -> Self {
        Self::with_config(count, "")
    }

    /// With this configuration on the first node.
    pub fn with_config(count: usize, config: &str) -> Self {
        let first = TestNode::builder().config(config).start();
        let mut fleet = Self { nodes: vec![first] };
        for number in 1..count {
            fleet.nodes.push(fleet.join(&format!("n{number}")));
        }
        fleet
    }

    /// A further node, with a certificate as `mainstay pki node` makes it.
    pub fn join(&self, name: &str) -> TestNode {
        let builder = TestNode::builder();
        let pki = builder.state().join("pki");
        let out = pki.to_str().unwrap();
        self.nodes[0]
            .cli()
            .run([
                "pki",
                "node",
                "--name",
                name,
                "--san",
                "127.0.0.1",
                "--out",
                out,
            ])
            .ok();
        builder.start()
    }

    /// How callers name the nodes.
    pub fn names(&self) -> Vec<String> {
        self.nodes
            .iter()
            .map(|node| node.listen().to_string())
            .collect()
    }

    /// The same as `-n` takes it.
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

/// An address on which nobody listens.
pub fn dead_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}
