//! `mainstay containers`

use clap::Args;
use mainstay_api::common::ContainerDriver;
use mainstay_api::os::{Container, ContainersRequest};

use super::connect;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;
use mainstay_client::Answer;
use mainstay_client::format::Table;

/// containerd namespace of Kubernetes.
pub const KUBERNETES: &str = "k8s.io";

/// List containers, exited ones included
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay containers                          containers of containerd in every namespace\n  \
    mainstay containers --namespace moby         containers of Docker\n  \
    mainstay containers -k                       pods and containers of Kubernetes\n  \
    mainstay containers -o json | jq '.[].containers[] | select(.pid == 0) | .id'")]
pub struct Containers {
    #[command(flatten)]
    scope: Scope,
}

/// Selects the containers of containerd or of Kubernetes.
#[derive(Debug, Clone, Args)]
pub struct Scope {
    /// Restrict to this containerd namespace: default (ctr, nerdctl), moby (Docker), k8s.io
    /// (Kubernetes), mainstay (cells), system (services), ... [default: all]
    #[arg(long, value_name = "NAMESPACE", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    namespace: Option<String>,

    /// Pods and containers of Kubernetes, through CRI
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
        let request = ContainersRequest {
            namespace: self.scope.namespace(),
            driver: self.scope.driver(),
        };
        let answers = client
            .call_all(request, |mut machine, request| async move {
                machine.containers(request).await
            })
            .await?;
        match global.output {
            Format::Table => client.print_table(table(answers))?,
            format => output::print_answers(format, "os.Container", &answers)?,
        }
        client.finish()
    }
}

fn table(answers: Vec<Answer<Container>>) -> Table {
    let mut table = Table::new(&["NODE", "NAMESPACE", "ID", "IMAGE", "PID", "STATUS"]);
    for Answer { node, message } in answers {
        for container in message.containers {
            table.row(vec![
                node.clone(),
                container.namespace,
                container.id,
                container.image,
                container.pid.to_string(),
                container.status,
            ]);
        }
    }
    table
}
