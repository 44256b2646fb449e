//! A node whose cells do not outlive the test.

use std::ops::Deref;

use mainstay_testkit::{Sweeper, TestNode};

pub struct SweptNode {
    node: TestNode,
    // Declared last: cells outlive their node.
    _sweeper: Sweeper,
}

impl SweptNode {
    /// `name` is part of the name of its cgroup.
    pub fn start(name: &str) -> Self {
        let sweeper = Sweeper::start(&format!("e2e-{name}"));
        let config = format!("[cells]\ncgroup = {:?}\n", sweeper.cgroup());
        Self {
            node: TestNode::builder().config(&config).start(),
            _sweeper: sweeper,
        }
    }
}

impl Deref for SweptNode {
    type Target = TestNode;

    fn deref(&self) -> &TestNode {
        &self.node
    }
}
