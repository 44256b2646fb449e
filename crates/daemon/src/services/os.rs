//! `os.OSService`: the machine's processes, memory, kernel log and containers.

use mainstay_api::common::Data;
use mainstay_api::os::os_service_server::OsService;
use mainstay_api::os::{
    ContainersRequest, ContainersResponse, DmesgRequest, MemoryResponse, ProcessesResponse,
    RestartRequest, RestartResponse, StatsRequest, StatsResponse,
};
use tonic::{Request, Response, Status};

use super::{Answers, not_served};

#[derive(Debug)]
pub(super) struct Os;

#[tonic::async_trait]
impl OsService for Os {
    type DmesgStream = Answers<Data>;

    async fn containers(
        &self,
        _: Request<ContainersRequest>,
    ) -> Result<Response<ContainersResponse>, Status> {
        Err(not_served("os.OSService/Containers"))
    }

    async fn dmesg(&self, _: Request<DmesgRequest>) -> Result<Response<Answers<Data>>, Status> {
        Err(not_served("os.OSService/Dmesg"))
    }

    async fn memory(&self, _: Request<()>) -> Result<Response<MemoryResponse>, Status> {
        Err(not_served("os.OSService/Memory"))
    }

    async fn processes(&self, _: Request<()>) -> Result<Response<ProcessesResponse>, Status> {
        Err(not_served("os.OSService/Processes"))
    }

    async fn restart(
        &self,
        _: Request<RestartRequest>,
    ) -> Result<Response<RestartResponse>, Status> {
        Err(not_served("os.OSService/Restart"))
    }

    async fn stats(&self, _: Request<StatsRequest>) -> Result<Response<StatsResponse>, Status> {
        Err(not_served("os.OSService/Stats"))
    }
}
