use mainstay_api::common::Data;
use mainstay_api::machine::LogsRequest;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::observe::observe_client::ObserveClient;
use mainstay_api::observe::{GetSubProcessStreamRequest, LogItem};
use mainstay_api::runtime::cell_service_client::CellServiceClient;
use mainstay_api::runtime::{
    AllocateCellRequest, Cell, CellStatus, Executable, FreeCellRequest, ListCellsRequest,
    StartCellRequest, StopCellRequest,
};
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// The largest message a node sends.
const MAX_MESSAGE_BYTES: usize = 32 << 20;

/// The calls that cells take, on one connection.
#[derive(Clone)]
pub struct CellClient {
    pub cells: CellServiceClient<Channel>,
    pub observe: ObserveClient<Channel>,
    pub machine: MachineServiceClient<Channel>,
}

impl CellClient {
    pub fn new(channel: &Channel) -> Self {
        Self {
            cells: CellServiceClient::new(channel.clone())
                .max_decoding_message_size(MAX_MESSAGE_BYTES),
            observe: ObserveClient::new(channel.clone()),
            machine: MachineServiceClient::new(channel.clone()),
        }
    }

    /// Allocates a cell that shares no namespace and has the default limits.
    pub async fn allocate(&mut self, name: &str) -> Result<(), Status> {
        let cell = Cell {
            name: name.to_owned(),
            ..Cell::default()
        };
        self.allocate_as(cell).await
    }

    pub async fn allocate_as(&mut self, cell: Cell) -> Result<(), Status> {
        let request = AllocateCellRequest { cell: Some(cell) };
        self.cells.allocate(request).await.map(drop)
    }

    /// Starts an executable and returns its PID.
    pub async fn start(&mut self, cell: &str, name: &str, command: &str) -> Result<i32, Status> {
        let executable = Some(Executable {
            name: name.to_owned(),
            command: command.to_owned(),
            cell_name: cell.to_owned(),
            ..Executable::default()
        });
        let started = self.cells.start(StartCellRequest { executable }).await?;
        Ok(started.into_inner().pid)
    }

    /// Stops an executable, and returns once its exit is recorded.
    pub async fn stop(&mut self, cell: &str, name: &str) -> Result<(), Status> {
        let request = StopCellRequest {
            cell_name: cell.to_owned(),
            executable_name: name.to_owned(),
            ..StopCellRequest::default()
        };
        self.cells.stop(request).await.map(drop)
    }

    pub async fn free(&mut self, cell: &str) -> Result<(), Status> {
        let request = FreeCellRequest {
            cell_name: cell.to_owned(),
        };
        self.cells.free(request).await.map(drop)
    }

    pub async fn list(&mut self) -> Result<Vec<CellStatus>, Status> {
        let listed = self.cells.list(ListCellsRequest::default()).await?;
        Ok(listed.into_inner().cells)
    }

    /// Streams the lines of one run of an executable until it has exited and all are sent.
    pub async fn output(&mut self, pid: i32, channel: i32) -> Result<Streaming<LogItem>, Status> {
        let request = GetSubProcessStreamRequest {
            channel_type: channel,
            process_id: pid.into(),
            ..GetSubProcessStreamRequest::default()
        };
        let stream = self.observe.get_sub_process_stream(request).await?;
        Ok(stream.into_inner())
    }

    /// Streams the log of an executable, `<cell>/<executable>`, from its beginning.
    pub async fn log(&mut self, id: &str, follow: bool) -> Result<Streaming<Data>, Status> {
        let request = LogsRequest {
            namespace: "mainstay".to_owned(),
            id: id.to_owned(),
            follow,
            tail_lines: -1,
            ..LogsRequest::default()
        };
        Ok(self.machine.logs(request).await?.into_inner())
    }
}
