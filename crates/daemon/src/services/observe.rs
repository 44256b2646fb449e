//! `observe.Observe`: output of the daemon and of what it runs, a line an item.

use std::sync::Arc;

use mainstay_api::observe::{
    GetAuraeDaemonLogStreamRequest, GetSubProcessStreamRequest, LogChannelType, LogItem,
    observe_server,
};
use mainstay_journal::{LogQuery, Stream};
use tonic::{Request, Response, Status};

use super::{Answers, logs, workload_status};
use crate::log::DAEMON_LOG;
use crate::node::Node;

/// How many of the daemon's last lines come before the live ones.
const LAST_LINES: u64 = 1000;

#[derive(Debug)]
pub(super) struct Observe {
    node: Arc<Node>,
}

impl Observe {
    pub(super) fn new(node: &Arc<Node>) -> Self {
        Self {
            node: Arc::clone(node),
        }
    }

    /// The daemon's own log, under both names of the rpc.
    pub(super) async fn daemon_log(&self) -> Result<Answers<LogItem>, Status> {
        let query = LogQuery {
            tail: Some(LAST_LINES),
            follow: true,
            ..LogQuery::default()
        };
        let lines = self.node.engines.journal.logs.read(DAEMON_LOG, query).await;
        let lines = lines.map_err(|error| logs::status(&error))?;
        Ok(Box::pin(logs::items(lines, "daemon")))
    }

    /// The output of a process, likewise.
    pub(super) async fn process_output(
        &self,
        pid: i64,
        channel: Stream,
    ) -> Result<Answers<LogItem>, Status> {
        let output = self.node.workloads.process_output(pid, channel).await;
        let output = output.map_err(|error| workload_status::status(&error))?;
        Ok(Box::pin(logs::process_items(output)))
    }
}

pub(super) fn bad_channel(number: i32, known: &str) -> Status {
    Status::invalid_argument(format!("{number} is no output of a process; {known}"))
}

#[tonic::async_trait]
impl observe_server::Observe for Observe {
    type GetAuraeDaemonLogStreamStream = Answers<LogItem>;
    type GetSubProcessStreamStream = Answers<LogItem>;

    async fn get_aurae_daemon_log_stream(
        &self,
        _: Request<GetAuraeDaemonLogStreamRequest>,
    ) -> Result<Response<Answers<LogItem>>, Status> {
        self.daemon_log().await.map(Response::new)
    }

    async fn get_sub_process_stream(
        &self,
        request: Request<GetSubProcessStreamRequest>,
    ) -> Result<Response<Answers<LogItem>>, Status> {
        let request = request.into_inner();
        let channel = match LogChannelType::try_from(request.channel_type) {
            Ok(LogChannelType::ChannelStdout) => Stream::Stdout,
            Ok(LogChannelType::ChannelStderr) => Stream::Stderr,
            Err(_) => {
                return Err(bad_channel(
                    request.channel_type,
                    "0 is stdout, 1 is stderr",
                ));
            }
        };
        let output = self.process_output(request.process_id, channel).await;
        output.map(Response::new)
    }
}
