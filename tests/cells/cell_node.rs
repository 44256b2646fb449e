//! A node and its cells, of which nothing is left after the test.

use mainstay_api::machine::LogsRequest;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::observe::observe_client::ObserveClient;
use mainstay_api::observe::{GetSubProcessStreamRequest, LogItem};
use mainstay_api::runtime::cell_service_client::CellServiceClient;
use mainstay_api::runtime::{
    AllocateCellRequest, Cell, CellStatus, Executable, ExecutableStatus, FreeCellRequest,
    ListCellsRequest, Namespace, StartCellRequest,
};
use tonic::transport::Channel;

use super::model::traces::Traces;
use crate::harness::{TestNode, soon};

pub(super) struct CellNode {
    pub(super) node: TestNode,
    // Declared after it: what is left is looked for when the daemon is gone.
    traces: Traces,
}

impl CellNode {
    /// `name` tells it from those of other tests.
    pub(super) fn start(name: &str) -> Self {
        let cgroup = format!("mainstay-e2e-{}-{name}", std::process::id());
        let traces = Traces::before(&cgroup);
        let config = format!("[cells]\ncgroup = \"{cgroup}\"\n");
        Self {
            node: TestNode::builder().config(&config).start(),
            traces,
        }
    }

    /// Kills the daemon, lets something happen, and starts it as `again` says.
    pub(super) fn crash(
        self,
        meanwhile: impl FnOnce(&TestNode),
        again: impl FnOnce(TestNode) -> TestNode,
    ) -> Self {
        let Self { mut node, traces } = self;
        node.kill();
        meanwhile(&node);
        Self {
            node: again(node),
            traces,
        }
    }

    pub(super) async fn cells(&self) -> CellServiceClient<Channel> {
        CellServiceClient::new(self.node.connect_locally().await)
    }

    pub(super) async fn allocate(&self, name: &str, share: &[Namespace]) {
        let cell = Some(Cell {
            name: name.to_owned(),
            share: share.iter().map(|shared| (*shared).into()).collect(),
            ..Cell::default()
        });
        let request = AllocateCellRequest { cell };
        self.cells().await.allocate(request).await.unwrap();
    }

    pub(super) async fn start_in(&self, cell: &str, name: &str, command: &str) -> i32 {
        let executable = Some(Executable {
            name: name.to_owned(),
            command: command.to_owned(),
            cell_name: cell.to_owned(),
            ..Executable::default()
        });
        let request = StartCellRequest { executable };
        let started = self.cells().await.start(request).await.unwrap();
        started.into_inner().pid
    }

    pub(super) async fn list(&self) -> Vec<CellStatus> {
        let listed = self.cells().await.list(ListCellsRequest::default()).await;
        listed.unwrap().into_inner().cells
    }

    /// An executable of an outermost cell.
    pub(super) async fn executable(&self, cell: &str, name: &str) -> ExecutableStatus {
        let cells = self.list().await;
        let is_named = |status: &&CellStatus| status.cell.as_ref().unwrap().name == cell;
        let status = cells.iter().find(is_named).unwrap();
        let mut executables = status.executables.iter();
        let found = executables.find(|one| one.executable.as_ref().unwrap().name == name);
        found.unwrap().clone()
    }

    /// The lines of a process, until it has ended and all of them are there.
    pub(super) async fn output(&self, pid: i32, channel: i32) -> Vec<LogItem> {
        let mut client = ObserveClient::new(self.node.connect_locally().await);
        let request = GetSubProcessStreamRequest {
            channel_type: channel,
            process_id: pid.into(),
        };
        let mut stream = client.get_sub_process_stream(request).await.unwrap();
        let mut items = Vec::new();
        while let Some(item) = soon("all output", stream.get_mut().message())
            .await
            .unwrap()
        {
            items.push(item);
        }
        items
    }

    /// Follows a log from its beginning until it has this line.
    pub(super) async fn follow_until(&self, log: &str, line: &str) -> String {
        let mut client = MachineServiceClient::new(self.node.connect_locally().await);
        let request = LogsRequest {
            namespace: "mainstay".to_owned(),
            id: log.to_owned(),
            follow: true,
            tail_lines: -1,
            ..LogsRequest::default()
        };
        let mut stream = client.logs(request).await.unwrap().into_inner();
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

    /// Frees everything; nothing of it may be left on the machine.
    pub(super) async fn finish(self) {
        for status in self.list().await {
            let request = FreeCellRequest {
                cell_name: status.cell.unwrap().name,
            };
            self.cells().await.free(request).await.unwrap();
        }
        self.traces.assert_none(&self.node.state());
    }
}
