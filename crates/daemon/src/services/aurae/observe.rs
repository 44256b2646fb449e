//! `aurae.observe.v0.ObserveService`: log lines for later clients, each wrapped in a response; and
//! signals.

use futures_util::TryStreamExt;
use mainstay_api::aurae::observe::v0::observe_service_server::ObserveService;
use mainstay_api::aurae::observe::v0::{
    GetAuraeDaemonLogStreamRequest, GetAuraeDaemonLogStreamResponse, GetPosixSignalsStreamRequest,
    GetPosixSignalsStreamResponse, GetSubProcessStreamRequest, GetSubProcessStreamResponse,
    LogChannelType, LogItem,
};
use mainstay_api::observe;
use mainstay_journal::Stream;
use tonic::{Request, Response, Status};

use super::signals;
use crate::rpc::Answers;
use crate::services::observe::{Observe, bad_channel};

#[tonic::async_trait]
impl ObserveService for Observe {
    type GetAuraeDaemonLogStreamStream = Answers<GetAuraeDaemonLogStreamResponse>;
    type GetPosixSignalsStreamStream = Answers<GetPosixSignalsStreamResponse>;
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
        request: Request<GetSubProcessStreamRequest>,
    ) -> Result<Response<Self::GetSubProcessStreamStream>, Status> {
        let request = request.into_inner();
        let channel = match LogChannelType::try_from(request.channel_type) {
            Ok(LogChannelType::Stdout) => Stream::Stdout,
            Ok(LogChannelType::Stderr) => Stream::Stderr,
            Ok(LogChannelType::Unspecified) | Err(_) => {
                return Err(bad_channel(
                    request.channel_type,
                    "1 is stdout, 2 is stderr",
                ));
            }
        };
        let pid = i64::from(request.process_id);
        let lines = self.process_output(pid, channel, None).await?;
        let wrapped = lines.map_ok(|item| GetSubProcessStreamResponse {
            item: Some(later(item)),
        });
        Ok(Response::new(Box::pin(wrapped)))
    }

    async fn get_posix_signals_stream(
        &self,
        request: Request<GetPosixSignalsStreamRequest>,
    ) -> Result<Response<Self::GetPosixSignalsStreamStream>, Status> {
        let signals = signals::stream(self.engines(), request.into_inner()).await;
        signals.map(Response::new)
    }
}

fn later(item: observe::LogItem) -> LogItem {
    let observe::LogItem {
        channel,
        line,
        timestamp,
        ..
    } = item;
    LogItem {
        channel,
        line,
        timestamp,
    }
}
