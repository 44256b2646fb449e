//! `mainstay containers`

use clap::Args;
use mainstay_api::common::ContainerDriver;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::os::ContainersRequest;

use super::{connect, within};
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output::{self, Table};

/// The namespace of containerd that Kubernetes uses.
pub(super) const KUBERNETES: &str = "k8s.io";

/// List the containers of the node, those that have exited too
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay containers                          everything containerd runs, in every namespace\n  \
    mainstay containers --namespace moby         what Docker runs\n  \
    mainstay containers -k                       pods and containers of Kubernetes\n  \
    mainstay containers -o json | jq '.[].containers[] | select(.pid == 0) | .id'")]
pub struct Containers {
    #[command(flatten)]
    scope: Scope,
}

/// Whose containers: of containerd, or of Kubernetes.
#[derive(Debug, Clone, Args)]
pub struct Scope {
    /// Only this namespace of containerd: default (ctr, nerdctl), moby (Docker), k8s.io
    /// (Kubernetes), ... [default: all]
    #[arg(long, value_name = "NAMESPACE", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    namespace: Option<String>,

    /// The pods and containers of Kubernetes, through CRI
    #[arg(short, long, conflicts_with = "namespace")]
    kubernetes: bool,
}

impl Scope {
    pub(super) fn namespace(&self) -> String {
        match &self.namespace {
            _ if self.kubernetes => KUBERNETES.to_owned(),
            Some(namespace) => namespace.clone(),
            None => String::new(),
        }
    }

    pub(super) fn driver(&self) -> i32 {
        let driver = if self.kubernetes {
            ContainerDriver::Cri
        } else {
            ContainerDriver::Containerd
        };
        driver.into()
    }
}

impl Containers {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let mut service = MachineServiceClient::new(client.channel());
        let request = client.request(ContainersRequest {
            namespace: self.scope.namespace(),
            driver: self.scope.driver(),
        });
        let answer = within(global, service.containers(request)).await?;
        let nodes = answer.into_inner().messages;
        if global.output != Format::Table {
            let answers = nodes
                .iter()
                .map(|node| (client.node_name(node.metadata.as_ref()), node));
            return output::per_node(global.output, "os.Container", answers);
        }
        let mut table = Table::new(&["NODE", "NAMESPACE", "ID", "IMAGE", "PID", "STATUS"]);
        for node in nodes {
            let name = client.node_name(node.metadata.as_ref());
            for container in node.containers {
                table.row(vec![
                    name.clone(),
                    container.namespace,
                    container.id,
                    container.image,
                    container.pid.to_string(),
                    container.status,
                ]);
            }
        }
        output::print(&table.to_string())
    }
}
