//! `mainstay restart`

use clap::Args;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::os::RestartRequest;

use super::connect;
use super::containers::{KUBERNETES, Scope};
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;

/// Restart a container: end it, by force after its grace period, and start it again
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay restart web\n  \
    mainstay restart --namespace default web\n  \
    mainstay restart -k kube-system/coredns-0:coredns\n\n\
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
        let mut service = MachineServiceClient::new(client.channel());
        let request = client.request(RestartRequest {
            namespace: self.scope.namespace(),
            id: self.id.clone(),
            driver: self.scope.driver(),
        });
        // Bounded by the node, which knows how long this container may take.
        let answer = service.restart(request).await?;
        let nodes = answer.into_inner().messages;
        if global.output != Format::Table {
            let answers = nodes
                .iter()
                .map(|node| (client.node_name(node.metadata.as_ref()), node));
            return output::per_node(global.output, "os.Restart", answers);
        }
        for node in &nodes {
            let name = client.node_name(node.metadata.as_ref());
            let id = &self.id;
            // No other container has a slash in its id.
            let of_kubernetes = self.scope.namespace() == KUBERNETES || id.contains('/');
            let done = if of_kubernetes {
                format!("{name}: container {id:?} stopped; its kubelet starts the next one\n")
            } else {
                format!("{name}: container {id:?} restarted\n")
            };
            output::print(&done)?;
        }
        Ok(())
    }
}
