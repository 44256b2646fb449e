//! `runtime.CellService`: isolated executables.

use mainstay_api::runtime::cell_service_server::CellService;
use mainstay_api::runtime::{
    AllocateCellRequest, AllocateCellResponse, FreeCellRequest, FreeCellResponse, ListCellsRequest,
    ListCellsResponse, StartCellRequest, StartCellResponse, StopCellRequest, StopCellResponse,
};
use tonic::{Request, Response, Status};

use super::not_served;

#[derive(Debug)]
pub(super) struct Cells;

#[tonic::async_trait]
impl CellService for Cells {
    async fn allocate(
        &self,
        _: Request<AllocateCellRequest>,
    ) -> Result<Response<AllocateCellResponse>, Status> {
        Err(not_served("runtime.CellService/Allocate"))
    }

    async fn free(
        &self,
        _: Request<FreeCellRequest>,
    ) -> Result<Response<FreeCellResponse>, Status> {
        Err(not_served("runtime.CellService/Free"))
    }

    async fn start(
        &self,
        _: Request<StartCellRequest>,
    ) -> Result<Response<StartCellResponse>, Status> {
        Err(not_served("runtime.CellService/Start"))
    }

    async fn stop(
        &self,
        _: Request<StopCellRequest>,
    ) -> Result<Response<StopCellResponse>, Status> {
        Err(not_served("runtime.CellService/Stop"))
    }

    async fn list(
        &self,
        _: Request<ListCellsRequest>,
    ) -> Result<Response<ListCellsResponse>, Status> {
        Err(not_served("runtime.CellService/List"))
    }
}
