//! `aurae.discovery.v0.DiscoveryService`: the health and version of the node.

use std::sync::Arc;

use mainstay_api::aurae::discovery::v0::discovery_service_server::DiscoveryService;
use mainstay_api::aurae::discovery::v0::{DiscoverRequest, DiscoverResponse};
use tonic::{Request, Response, Status};
use tonic_health::server::HealthReporter;

use crate::node::Node;
use crate::services::health::is_serving;

#[derive(Debug)]
pub struct Discovery {
    node: Arc<Node>,
    health: HealthReporter,
}

impl Discovery {
    pub fn new(node: &Arc<Node>, health: &HealthReporter) -> Self {
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
            healthy: is_serving(&self.health).await,
            version: self.node.build.version.clone(),
        }))
    }
}
