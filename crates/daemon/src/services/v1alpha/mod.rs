//! `v1alpha.PublicAPI`: pods and images, for readers.

use std::sync::Arc;

use mainstay_api::v1alpha::{
    GetInfoRequest, GetInfoResponse, GetLogsRequest, GetLogsResponse, GlobalFlags, Info,
    InspectImageRequest, InspectImageResponse, InspectPodRequest, InspectPodResponse,
    ListImagesRequest, ListImagesResponse, ListPodsRequest, ListPodsResponse, ListenEventsRequest,
    ListenEventsResponse, public_api_server,
};
use tonic::{Request, Response, Status};

use crate::node::Node;
use crate::rpc::{Answers, not_served};

/// The version of this API that its clients know.
const API_VERSION: &str = "1.0.0-alpha";
/// The version of the App Container specification that pods and images follow.
const APPC_VERSION: &str = "0.8.11";

#[derive(Debug)]
pub(super) struct PublicApi {
    node: Arc<Node>,
}

impl PublicApi {
    pub(super) fn new(node: &Arc<Node>) -> Self {
        Self {
            node: Arc::clone(node),
        }
    }
}

#[tonic::async_trait]
impl public_api_server::PublicApi for PublicApi {
    type ListenEventsStream = Answers<ListenEventsResponse>;
    type GetLogsStream = Answers<GetLogsResponse>;

    async fn get_info(
        &self,
        _: Request<GetInfoRequest>,
    ) -> Result<Response<GetInfoResponse>, Status> {
        let flags = GlobalFlags {
            dir: self.node.state.display().to_string(),
            system_config_dir: "/etc/mainstay".to_owned(),
            local_config_dir: (self.node.config.current().file.as_deref())
                .and_then(|file| file.parent())
                .map(|dir| dir.display().to_string())
                .unwrap_or_default(),
            user_config_dir: String::new(),
            insecure_flags: "none".to_owned(),
            trust_keys_from_https: false,
        };
        let info = Info {
            rkt_version: self.node.build.version.clone(),
            appc_version: APPC_VERSION.to_owned(),
            api_version: API_VERSION.to_owned(),
            global_flags: Some(flags),
        };
        Ok(Response::new(GetInfoResponse { info: Some(info) }))
    }

    async fn list_pods(
        &self,
        _: Request<ListPodsRequest>,
    ) -> Result<Response<ListPodsResponse>, Status> {
        Err(not_served("v1alpha.PublicAPI/ListPods"))
    }

    async fn inspect_pod(
        &self,
        _: Request<InspectPodRequest>,
    ) -> Result<Response<InspectPodResponse>, Status> {
        Err(not_served("v1alpha.PublicAPI/InspectPod"))
    }

    async fn list_images(
        &self,
        _: Request<ListImagesRequest>,
    ) -> Result<Response<ListImagesResponse>, Status> {
        Err(not_served("v1alpha.PublicAPI/ListImages"))
    }

    async fn inspect_image(
        &self,
        _: Request<InspectImageRequest>,
    ) -> Result<Response<InspectImageResponse>, Status> {
        Err(not_served("v1alpha.PublicAPI/InspectImage"))
    }

    async fn listen_events(
        &self,
        _: Request<ListenEventsRequest>,
    ) -> Result<Response<Self::ListenEventsStream>, Status> {
        Err(not_served("v1alpha.PublicAPI/ListenEvents"))
    }

    async fn get_logs(
        &self,
        _: Request<GetLogsRequest>,
    ) -> Result<Response<Self::GetLogsStream>, Status> {
        Err(not_served("v1alpha.PublicAPI/GetLogs"))
    }
}
