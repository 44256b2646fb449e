//! `aurae.discovery.v0.DiscoveryService`: whether the node is there, and its version.

use std::sync::Arc;

use mainstay_api::aurae::discovery::v0::discovery_service_server::DiscoveryService;
use mainstay_api::aurae::discovery::v0::{DiscoverRequest, DiscoverResponse};
use tonic::{Request, Response, Status};

use super::Health;
use crate::node::Node;

#[derive(Debug)]
pub(super) struct Discovery {
    node: Arc<Node>,
    health: Health,
}

impl Discovery {
    pub(super) fn new(node: &Arc<Node>, health: &Health) -> Self {
        Self {
            node: Arc::clone(node),
            health: health.clone(),
        }
    }
}

#[tonic::async_trait]
impl DiscoveryService for Discovery {
    async fn discover(
        &self,
        _: Request<DiscoverRequest>,
    ) -> Result<Response<DiscoverResponse>, Status> {
        Ok(Response::new(DiscoverResponse {
            healthy: self.health.is_serving().await,
            version: self.node.build.version.clone(),
        }))
    }
}
