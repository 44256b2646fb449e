//! `os.OSService`: the machine's processes, memory, kernel log and containers.

use mainstay_api::common::Data;
use mainstay_api::envelope;
use mainstay_api::os::os_service_server::OsService;
use mainstay_api::os::{
    ContainersRequest, ContainersResponse, DmesgRequest, MemoryResponse, ProcessesResponse,
    RestartRequest, RestartResponse, StatsRequest, StatsResponse,
};
use tonic::{Request, Response, Status};

use super::{Answers, dmesg, memory, not_served, processes};

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

    async fn dmesg(
        &self,
        request: Request<DmesgRequest>,
    ) -> Result<Response<Answers<Data>>, Status> {
        dmesg::stream(request.get_ref()).map(Response::new)
    }

    async fn memory(&self, _: Request<()>) -> Result<Response<MemoryResponse>, Status> {
        memory::memory()
            .await
            .map(|memory| Response::new(envelope(memory)))
    }

    async fn processes(&self, _: Request<()>) -> Result<Response<ProcessesResponse>, Status> {
        processes::processes()
            .await
            .map(|processes| Response::new(envelope(processes)))
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
