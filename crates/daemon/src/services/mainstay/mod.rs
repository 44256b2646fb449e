//! `mainstay.NodeService`: calls that no original API has.

mod cgroups;
mod slots;
mod upload_image;

use std::sync::Arc;
use std::time::SystemTime;

use mainstay_api::envelope;
use mainstay_api::mainstay::node_service_server::NodeService;
use mainstay_api::mainstay::{
    CgroupsRequest, CgroupsResponse, Configuration, ConfigurationResponse, SlotsResponse,
    UploadImageRequest, UploadImageResponse,
};
use tonic::{Request, Response, Status, Streaming};

use crate::configuration::target;
use crate::node::Node;

#[derive(Debug)]
pub(super) struct NodeCalls {
    node: Arc<Node>,
}

impl NodeCalls {
    pub(super) fn new(node: &Arc<Node>) -> Self {
        Self {
            node: Arc::clone(node),
        }
    }
}

#[tonic::async_trait]
impl NodeService for NodeCalls {
    async fn cgroups(
        &self,
        request: Request<CgroupsRequest>,
    ) -> Result<Response<CgroupsResponse>, Status> {
        let answer = cgroups::cgroups(request.get_ref()).await?;
        Ok(Response::new(envelope(answer)))
    }

    async fn configuration(
        &self,
        _: Request<()>,
    ) -> Result<Response<ConfigurationResponse>, Status> {
        let config = &self.node.config;
        let toml = config.to_toml().map_err(|error| {
            Status::internal(format!("cannot write the configuration as TOML: {error}"))
        })?;
        let current = config.current();
        let file = current.file.as_ref();
        Ok(Response::new(envelope(Configuration {
            metadata: None,
            file: file.map_or_else(String::new, |file| file.display().to_string()),
            toml,
            pending_restart: config.pending_restart(),
            reverts_at: (self.node.changes.trials.ends()).map(|at| SystemTime::from(at).into()),
            writes: target(&current).display().to_string(),
        })))
    }

    async fn slots(&self, _: Request<()>) -> Result<Response<SlotsResponse>, Status> {
        let slots = slots::slots(&self.node.engines.upgrade).await?;
        Ok(Response::new(envelope(slots)))
    }

    async fn upload_image(
        &self,
        request: Request<Streaming<UploadImageRequest>>,
    ) -> Result<Response<UploadImageResponse>, Status> {
        let upgrade = &self.node.engines.upgrade;
        let uploaded = upload_image::upload(upgrade, request.into_inner()).await?;
        Ok(Response::new(envelope(uploaded)))
    }
}
