//! `mainstay.NodeService`: calls that no original API has.

mod cgroups;
mod slots;
mod upload_image;

use std::sync::Arc;

use mainstay_api::envelope;
use mainstay_api::mainstay::node_service_server::NodeService;
use mainstay_api::mainstay::{
    CgroupsRequest, CgroupsResponse, Configuration, ConfigurationResponse, SlotsResponse,
    UploadImageRequest, UploadImageResponse,
};
use tonic::{Request, Response, Status, Streaming};

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
        let file = self.node.config_file.as_ref();
        let pending = config.pending_restart().into_iter();
        Ok(Response::new(envelope(Configuration {
            metadata: None,
            file: file.map_or_else(String::new, |file| file.display().to_string()),
            toml,
            pending_restart: pending.map(str::to_owned).collect(),
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
