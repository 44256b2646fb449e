//! `mainstay restart`

use std::time::Duration;

use clap::Args;
use mainstay_api::os::RestartRequest;

use super::connect;
use super::containers::{KUBERNETES, Scope};
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;
use mainstay_client::Answer;

/// Namespace of cells.
const CELLS: &str = "mainstay";
/// Namespace of services.
const SERVICES: &str = "system";
/// The node bounds the stop by the grace period of the container; this is longer than any.
const MIN_TIMEOUT: Duration = Duration::from_secs(600);

/// Restart a container: SIGTERM, SIGKILL after its grace period, and start
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay restart web\n  \
    mainstay restart --namespace default web\n  \
    mainstay restart -k kube-system/coredns-0:coredns\n  \
    mainstay restart --namespace mainstay web/server    executable in a cell\n\n\
    A Kubernetes container is only stopped; its kubelet starts the next instance. The command waits\n\
    until the container has exited, regardless of --timeout.")]
pub struct Restart {
    /// Container id as in `mainstay containers`
    id: String,

    #[command(flatten)]
    scope: Scope,
}

impl Restart {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let request = RestartRequest {
            namespace: self.scope.namespace(),
            id: self.id.clone(),
            driver: self.scope.driver(),
        };
        let bound = global.timeout.max(MIN_TIMEOUT);
        let answers = client
            .call_all_within(bound, request, |mut machine, request| async move {
                machine.restart(request).await
            })
            .await?;
        if global.output == Format::Table {
            for Answer { node, .. } in &answers {
                let prefix = client.message_prefix(node);
                output::print(&format!("{prefix}{}\n", self.done()))?;
            }
        } else {
            output::print_answers(global.output, "os.Restart", &answers)?;
        }
        client.finish()
    }

    fn done(&self) -> String {
        let id = &self.id;
        if self.scope.namespace() == CELLS {
            return format!("executable {id:?} restarted");
        }
        if self.scope.namespace() == SERVICES {
            return format!("service {id:?} restarted");
        }
        // Only ids of Kubernetes contain a slash.
        if self.scope.namespace() == KUBERNETES || id.contains('/') {
            format!("container {id:?} stopped; its kubelet starts the next instance")
        } else {
            format!("container {id:?} restarted")
        }
    }
}
