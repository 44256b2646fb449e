//! `observe.Observe`: output of the daemon and of its processes, a line per item.

use std::sync::Arc;

use mainstay_api::observe::{
    GetAuraeDaemonLogStreamRequest, GetSubProcessStreamRequest, LogChannelType, LogItem,
    observe_server,
};
use mainstay_journal::{LogQuery, Stream, Timestamp};
use tonic::{Request, Response, Status};

use super::machine::{items, process_items};
use crate::engines::Engines;
use crate::log::DAEMON_LOG;
use crate::node::Node;
use crate::rpc::{Answers, status};

/// Lines of the daemon's log that precede the live ones.
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

    pub(super) fn engines(&self) -> &Engines {
        &self.node.engines
    }

    /// Follows the daemon's own log; serves the rpc of both packages.
    pub(super) async fn daemon_log(&self) -> Result<Answers<LogItem>, Status> {
        let query = LogQuery {
            tail: Some(LAST_LINES),
            follow: true,
            ..LogQuery::default()
        };
        let logs = self.node.engines.journal.own_logs();
        let lines = logs.read(DAEMON_LOG, query).await;
        let lines = lines.map_err(|error| status::of_logs(&error))?;
        Ok(Box::pin(items(lines, "daemon")))
    }

    /// Follows the output of a process, from a time on; serves the rpc of both packages.
    pub(super) async fn process_output(
        &self,
        pid: i64,
        channel: Stream,
        since: Option<Timestamp>,
    ) -> Result<Answers<LogItem>, Status> {
        let output = self
            .node
            .workloads
            .process_output(pid, channel, since)
            .await;
        let output = output.map_err(|error| status::of_workloads(&error))?;
        Ok(Box::pin(process_items(output)))
    }
}

pub(super) fn bad_channel(number: i32, known: &str) -> Status {
    Status::invalid_argument(format!("{number} is not an output stream; {known}"))
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
        let since = match request.since_nanos {
            0 => None,
            nanos => Some(Timestamp::from_nanos(nanos)),
        };
        let output = self
            .process_output(request.process_id, channel, since)
            .await;
        output.map(Response::new)
    }
}
