//! `aurae.cells.v0.CellService`: the same cells for later clients.

use mainstay_api::aurae::cells::v0::cell_service_server::CellService;
use mainstay_api::aurae::cells::v0::{
    CellServiceAllocateRequest, CellServiceAllocateResponse, CellServiceFreeRequest,
    CellServiceFreeResponse, CellServiceListRequest, CellServiceListResponse,
    CellServiceStartRequest, CellServiceStartResponse, CellServiceStopRequest,
    CellServiceStopResponse,
};
use tonic::{Request, Response, Status};

use super::cells::Cells;
use super::not_served;

#[tonic::async_trait]
impl CellService for Cells {
    async fn allocate(
        &self,
        _: Request<CellServiceAllocateRequest>,
    ) -> Result<Response<CellServiceAllocateResponse>, Status> {
        Err(not_served("aurae.cells.v0.CellService/Allocate"))
    }

    async fn free(
        &self,
        _: Request<CellServiceFreeRequest>,
    ) -> Result<Response<CellServiceFreeResponse>, Status> {
        Err(not_served("aurae.cells.v0.CellService/Free"))
    }

    async fn start(
        &self,
        _: Request<CellServiceStartRequest>,
    ) -> Result<Response<CellServiceStartResponse>, Status> {
        Err(not_served("aurae.cells.v0.CellService/Start"))
    }

    async fn stop(
        &self,
        _: Request<CellServiceStopRequest>,
    ) -> Result<Response<CellServiceStopResponse>, Status> {
        Err(not_served("aurae.cells.v0.CellService/Stop"))
    }

    async fn list(
        &self,
        _: Request<CellServiceListRequest>,
    ) -> Result<Response<CellServiceListResponse>, Status> {
        Err(not_served("aurae.cells.v0.CellService/List"))
    }
}
