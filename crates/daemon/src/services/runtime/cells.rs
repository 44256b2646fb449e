//! `runtime.CellService`: isolated executables.

use std::sync::Arc;

use mainstay_api::runtime::cell_service_server::CellService;
use mainstay_api::runtime::{
    AllocateCellRequest, AllocateCellResponse, AttachCellRequest, AttachCellResponse,
    FreeCellRequest, FreeCellResponse, ListCellsRequest, ListCellsResponse, StartCellRequest,
    StartCellResponse, StopCellRequest, StopCellResponse,
};
use mainstay_cells::{CellError, ExecutableSpec, StopOptions};
use tonic::{Request, Response, Status, Streaming};

use super::cell_spec::{
    cell_name, executable_name, executable_spec, grace, read_cell_spec, signal,
};
use super::{attach, cell_status};
use crate::node::Node;
use crate::rpc::Answers;
use crate::rpc::status::{self, invalid};

/// Calls on cells; the services of both packages are implemented for it.
#[derive(Debug, Clone)]
pub struct CellCalls {
    pub(in crate::services) node: Arc<Node>,
}

impl CellCalls {
    pub fn new(node: &Arc<Node>) -> Self {
        Self {
            node: Arc::clone(node),
        }
    }
}

#[tonic::async_trait]
impl CellService for CellCalls {
    type AttachStream = Answers<AttachCellResponse>;

    async fn allocate(
        &self,
        request: Request<AllocateCellRequest>,
    ) -> Result<Response<AllocateCellResponse>, Status> {
        let cell = request.into_inner().cell.unwrap_or_default();
        let name = cell_name(&cell.name)?;
        let spec = read_cell_spec(cell).await?;
        let made = self.node.engines.cells.allocate(name.clone(), spec).await;
        let made = made.map_err(|error| status::of_cells(&error))?;
        Ok(Response::new(AllocateCellResponse {
            cell_name: name.to_string(),
            cgroup_v2: made.cgroup_v2,
        }))
    }

    async fn free(
        &self,
        request: Request<FreeCellRequest>,
    ) -> Result<Response<FreeCellResponse>, Status> {
        let name = cell_name(&request.into_inner().cell_name)?;
        let freed = self.node.engines.cells.free(name).await;
        freed.map_err(|error| status::of_cells(&error))?;
        Ok(Response::new(FreeCellResponse {}))
    }

    async fn start(
        &self,
        request: Request<StartCellRequest>,
    ) -> Result<Response<StartCellResponse>, Status> {
        let executable = request.into_inner().executable.unwrap_or_default();
        let cell = cell_name(&executable.cell_name)?;
        let name = executable_name(&executable.name)?;
        let words = ExecutableSpec::split(&executable.command).map_err(invalid)?;
        let spec = executable_spec(executable, words)?;
        let run = self.node.engines.cells.start(cell, name, spec).await;
        let run = run.map_err(|error| status::of_cells(&error))?;
        Ok(Response::new(StartCellResponse {
            pid: run.pid,
            uid: run.uid,
            gid: run.gid,
        }))
    }

    async fn stop(
        &self,
        request: Request<StopCellRequest>,
    ) -> Result<Response<StopCellResponse>, Status> {
        let request = request.into_inner();
        let cell = cell_name(&request.cell_name)?;
        let executable = match request.executable_name.as_str() {
            "" => None,
            name => Some(executable_name(name)?),
        };
        let how = StopOptions {
            signal: signal(request.signal)?,
            grace: request.grace.map(grace).transpose()?,
        };
        let stopped = self.node.engines.cells.stop(cell, executable, how).await;
        stopped.map_err(|error| status::of_cells(&error))?;
        Ok(Response::new(StopCellResponse {}))
    }

    async fn list(
        &self,
        request: Request<ListCellsRequest>,
    ) -> Result<Response<ListCellsResponse>, Status> {
        let top = match request.into_inner().cell_name.as_str() {
            "" => None,
            name => Some(cell_name(name)?),
        };
        let cells = cell_status::tree(&self.node.engines.cells, top.as_ref());
        if let (Some(top), true) = (top, cells.is_empty()) {
            return Err(status::of_cells(&CellError::NoSuchCell { cell: top }));
        }
        Ok(Response::new(ListCellsResponse { cells }))
    }

    async fn attach(
        &self,
        request: Request<Streaming<AttachCellRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let answers = attach::attach(&self.node.engines.cells, request.into_inner()).await?;
        Ok(Response::new(answers))
    }
}
