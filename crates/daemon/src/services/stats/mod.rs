//! `stats.StatsService`: the figures of the cluster this node belongs to.

use mainstay_api::stats::stats_service_server::StatsService;
use mainstay_api::stats::{
    GetClusterNodesRequest, GetClusterNodesResponse, GetClusterRadarRequest,
    GetClusterRadarResponse, GetClusterResourcesRequest, GetClusterResourcesResponse,
    GetClusterStatsRequest, GetClusterStatsResponse,
};
use tonic::{Request, Response, Status};

use crate::rpc::not_served;

#[derive(Debug)]
pub(super) struct Stats;

#[tonic::async_trait]
impl StatsService for Stats {
    async fn get_cluster_stats(
        &self,
        _: Request<GetClusterStatsRequest>,
    ) -> Result<Response<GetClusterStatsResponse>, Status> {
        Err(not_served("stats.StatsService/GetClusterStats"))
    }

    async fn get_cluster_resources(
        &self,
        _: Request<GetClusterResourcesRequest>,
    ) -> Result<Response<GetClusterResourcesResponse>, Status> {
        Err(not_served("stats.StatsService/GetClusterResources"))
    }

    async fn get_cluster_nodes(
        &self,
        _: Request<GetClusterNodesRequest>,
    ) -> Result<Response<GetClusterNodesResponse>, Status> {
        Err(not_served("stats.StatsService/GetClusterNodes"))
    }

    async fn get_cluster_radar(
        &self,
        _: Request<GetClusterRadarRequest>,
    ) -> Result<Response<GetClusterRadarResponse>, Status> {
        Err(not_served("stats.StatsService/GetClusterRadar"))
    }
}
