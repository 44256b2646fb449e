//! A node and its cells, of which nothing is left after the test.

use mainstay_api::observe::LogItem;
use mainstay_api::runtime::cell_service_client::CellServiceClient;
use mainstay_api::runtime::{Cell, CellStatus, ExecutableStatus, Namespace};
use mainstay_testkit::{CellClient, Sweeper, TestNode, TestNodeBuilder, soon};
use rustix::process::Pid;
use tonic::transport::Channel;

use super::model::traces::Traces;

pub(crate) struct CellNode {
    pub(crate) node: TestNode,
    pub(super) traces: Traces,
    // Declared last: cells outlive their node.
    sweeper: Sweeper,
}

impl CellNode {
    /// `name` is part of the name of its cgroup.
    pub(crate) fn start(name: &str) -> Self {
        Self::start_as(name, TestNode::builder())
    }

    pub(crate) fn start_as(name: &str, builder: TestNodeBuilder) -> Self {
        Self::start_with(name, builder, "")
    }

    /// Starts a node with further sections in its configuration.
    pub(crate) fn start_with(name: &str, builder: TestNodeBuilder, sections: &str) -> Self {
        let sweeper = Sweeper::start(&format!("e2e-{name}"));
        let traces = Traces::before(sweeper.cgroup());
        let config = format!("[cells]\ncgroup = {:?}\n{sections}", sweeper.cgroup());
        Self {
            node: builder.config(&config).start(),
            traces,
            sweeper,
        }
    }

    /// Kills the daemon, lets something happen, and starts it as `again` says.
    pub(crate) fn crash(
        mut self,
        meanwhile: impl FnOnce(&TestNode),
        again: impl FnOnce(TestNode) -> TestNode,
    ) -> Self {
        self.node.kill();
        meanwhile(&self.node);
        self.with_node(again)
    }

    pub(crate) fn with_node(self, start: impl FnOnce(TestNode) -> TestNode) -> Self {
        Self {
            node: start(self.node),
            ..self
        }
    }

    pub(super) fn traces(&self) -> &Traces {
        &self.traces
    }

    pub(crate) async fn client(&self) -> CellClient {
        CellClient::new(&self.node.connect_locally().await)
    }

    pub(crate) async fn cells(&self) -> CellServiceClient<Channel> {
        self.client().await.cells
    }

    pub(crate) async fn allocate(&self, name: &str, share: &[Namespace]) {
        let cell = Cell {
            name: name.to_owned(),
            share: share.iter().map(|shared| (*shared).into()).collect(),
            ..Cell::default()
        };
        self.client().await.allocate_as(cell).await.unwrap();
    }

    pub(crate) async fn start_in(&self, cell: &str, name: &str, command: &str) -> i32 {
        let mut client = self.client().await;
        client.start(cell, name, command).await.unwrap()
    }

    pub(crate) async fn list(&self) -> Vec<CellStatus> {
        self.client().await.list().await.unwrap()
    }

    /// The shim of an outermost cell.
    pub(crate) async fn shim_pid(&self, cell: &str) -> Pid {
        let cells = self.list().await;
        let is_named = |status: &&CellStatus| status.cell.as_ref().unwrap().name == cell;
        let status = cells.iter().find(is_named).unwrap();
        Pid::from_raw(status.shim_pid).unwrap()
    }

    /// An executable of a cell, nested or not.
    pub(crate) async fn executable(&self, cell: &str, name: &str) -> ExecutableStatus {
        let mut cells = self.list().await;
        let status = loop {
            let status = cells.pop().unwrap_or_else(|| panic!("no cell {cell}"));
            if status.cell.as_ref().unwrap().name == cell {
                break status;
            }
            cells.extend(status.children);
        };
        let mut executables = status.executables.iter();
        let found = executables.find(|one| one.executable.as_ref().unwrap().name == name);
        found.unwrap().clone()
    }

    /// The lines of a process, once it has exited and all of them are there.
    pub(crate) async fn output(&self, pid: i32, channel: i32) -> Vec<LogItem> {
        let mut stream = self.client().await.output(pid, channel).await.unwrap();
        let mut items = Vec::new();
        while let Some(item) = soon("all output", stream.message()).await.unwrap() {
            items.push(item);
        }
        items
    }

    /// Follows the log of an executable from its beginning until it contains this line.
    pub(crate) async fn follow_until(&self, log: &str, line: &str) -> String {
        let stream = self.client().await.log(log, true).await;
        let mut stream = stream.unwrap();
        let mut text = String::new();
        soon(line, async {
            while !text.lines().any(|seen| seen == line) {
                let data = stream.message().await.unwrap().unwrap();
                text.push_str(std::str::from_utf8(&data.bytes).unwrap());
            }
        })
        .await;
        text
    }

    /// Frees every cell, and asserts that nothing of them is left on the machine.
    pub(crate) async fn finish(self) {
        let mut client = self.client().await;
        for status in self.list().await {
            client.free(&status.cell.unwrap().name).await.unwrap();
        }
        self.traces.assert_none(&self.node.state());
        drop(self.node);
        drop(self.sweeper);
    }
}
