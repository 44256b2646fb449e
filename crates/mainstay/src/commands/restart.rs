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

/// The namespace of the node's own workloads.
const OWN: &str = "mainstay";
/// The node knows how long a container may take to end; this is longer than any should.
const MOST_PATIENCE: Duration = Duration::from_secs(600);

/// Restart a container: end it, by force after its grace period, and start it again
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay restart web\n  \
    mainstay restart --namespace default web\n  \
    mainstay restart -k kube-system/coredns-0:coredns\n  \
    mainstay restart --namespace mainstay web/server    an executable in a cell\n\n\
    A container of Kubernetes starts only once: it is stopped, and its kubelet starts the next one.\n\
    The command waits until that is done, however long the container takes to end.")]
pub struct Restart {
    /// Which container, as `mainstay containers` shows it
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
        let bound = global.timeout.max(MOST_PATIENCE);
        let answers = client
            .call_all_within(bound, request, |mut machine, request| async move {
                machine.restart(request).await
            })
            .await?;
        if global.output == Format::Table {
            for Answer { node, .. } in &answers {
                output::print(&format!("{node}: {}\n", self.done()))?;
            }
        } else {
            output::print_answers(global.output, "os.Restart", &answers)?;
        }
        client.finish()
    }

    fn done(&self) -> String {
        let id = &self.id;
        if self.scope.namespace() == OWN {
            return format!("executable {id:?} restarted");
        }
        // No other container has a slash in its id.
        if self.scope.namespace() == KUBERNETES || id.contains('/') {
            format!("container {id:?} stopped; its kubelet starts the next one")
        } else {
            format!("container {id:?} restarted")
        }
    }
}
