//! `observe.Observe`: output of the daemon and of what it runs, a line an item.

use std::sync::Arc;

use mainstay_api::observe::{
    GetAuraeDaemonLogStreamRequest, GetSubProcessStreamRequest, LogItem, observe_server,
};
use mainstay_journal::LogQuery;
use tonic::{Request, Response, Status};

use super::{Answers, logs, not_served};
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
        let lines = self.node.logs.read(DAEMON_LOG, query).await;
        let lines = lines.map_err(|error| logs::status(&error))?;
        Ok(Box::pin(logs::items(lines, "daemon")))
    }
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
        _: Request<GetSubProcessStreamRequest>,
    ) -> Result<Response<Answers<LogItem>>, Status> {
        Err(not_served("observe.Observe/GetSubProcessStream"))
    }
}
