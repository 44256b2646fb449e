//! `aurae.observe.v0.ObserveService`: the same lines for later clients, each wrapped.

use futures_util::TryStreamExt;
use mainstay_api::aurae::observe::v0::observe_service_server::ObserveService;
use mainstay_api::aurae::observe::v0::{
    GetAuraeDaemonLogStreamRequest, GetAuraeDaemonLogStreamResponse, GetSubProcessStreamRequest,
    GetSubProcessStreamResponse, LogItem,
};
use mainstay_api::observe;
use tonic::{Request, Response, Status};

use super::observe::Observe;
use super::{Answers, not_served};

#[tonic::async_trait]
impl ObserveService for Observe {
    type GetAuraeDaemonLogStreamStream = Answers<GetAuraeDaemonLogStreamResponse>;
    type GetSubProcessStreamStream = Answers<GetSubProcessStreamResponse>;

    async fn get_aurae_daemon_log_stream(
        &self,
        _: Request<GetAuraeDaemonLogStreamRequest>,
    ) -> Result<Response<Self::GetAuraeDaemonLogStreamStream>, Status> {
        let lines = self.daemon_log().await?;
        let wrapped = lines.map_ok(|item| GetAuraeDaemonLogStreamResponse {
            item: Some(later(item)),
        });
        Ok(Response::new(Box::pin(wrapped)))
    }

    async fn get_sub_process_stream(
        &self,
        _: Request<GetSubProcessStreamRequest>,
    ) -> Result<Response<Self::GetSubProcessStreamStream>, Status> {
        Err(not_served(
            "aurae.observe.v0.ObserveService/GetSubProcessStream",
        ))
    }
}

fn later(item: observe::LogItem) -> LogItem {
    let observe::LogItem {
        channel,
        line,
        timestamp,
    } = item;
    LogItem {
        channel,
        line,
        timestamp,
    }
}
