//! `os.OSService`: the machine's processes, memory, kernel log and containers. The machine service
//! has the same rpcs and calls the same functions.

pub(super) mod containers;
pub(super) mod dmesg;
pub(super) mod memory;
pub(super) mod processes;

use std::sync::Arc;

use mainstay_api::common::Data;
use mainstay_api::os::os_service_server::OsService;
use mainstay_api::os::{
    ContainersRequest, ContainersResponse, DmesgRequest, MemoryResponse, ProcessesResponse,
    RestartRequest, RestartResponse, StatsRequest, StatsResponse,
};
use tonic::{Request, Response, Status};

use crate::node::Node;
use crate::rpc::Answers;
pub(super) use containers::scope;

#[derive(Debug)]
pub(super) struct Os {
    node: Arc<Node>,
}

impl Os {
    pub(super) fn new(node: &Arc<Node>) -> Self {
        Self {
            node: Arc::clone(node),
        }
    }
}

#[tonic::async_trait]
impl OsService for Os {
    type DmesgStream = Answers<Data>;

    async fn containers(
        &self,
        request: Request<ContainersRequest>,
    ) -> Result<Response<ContainersResponse>, Status> {
        containers::list(&self.node, request.get_ref()).await
    }

    async fn dmesg(
        &self,
        request: Request<DmesgRequest>,
    ) -> Result<Response<Answers<Data>>, Status> {
        dmesg::stream(request.get_ref())
    }

    async fn memory(&self, _: Request<()>) -> Result<Response<MemoryResponse>, Status> {
        memory::memory().await
    }

    async fn processes(&self, _: Request<()>) -> Result<Response<ProcessesResponse>, Status> {
        processes::processes().await
    }

    async fn restart(
        &self,
        request: Request<RestartRequest>,
    ) -> Result<Response<RestartResponse>, Status> {
        containers::restart(&self.node, request.get_ref()).await
    }

    async fn stats(
        &self,
        request: Request<StatsRequest>,
    ) -> Result<Response<StatsResponse>, Status> {
        containers::stats(&self.node, request.get_ref()).await
    }
}
