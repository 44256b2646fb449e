//! `mainstay logs`

use clap::Args;
use mainstay_api::common::ContainerDriver;
use mainstay_api::machine::LogsRequest;

use super::connect;
use super::containers::KUBERNETES;
use super::streams::{check_times, print_text};
use crate::cli::Global;
use crate::failure::Outcome;
use mainstay_client::format::parse_time;
use mainstay_client::format::wire_time;

/// Show a log: `mainstay` (the daemon), `audit`, `denied`, `kernel`, of a service or a container
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay logs mainstay --tail 20\n  \
    mainstay logs mainstay -f\n  \
    mainstay logs audit --since 1h\n  \
    mainstay logs kernel --tail 20 -f\n  \
    mainstay logs mainstay --since 2026-11-15T20:00:00Z --until 2026-11-15T21:00:00Z\n  \
    mainstay logs -k kube-system/coredns-0:coredns -f     container of Kubernetes\n  \
    mainstay logs -k kube-system/coredns-0:coredns -p     its previous instance\n  \
    mainstay logs --namespace default web                 container of containerd")]
pub struct Logs {
    /// Log id, service id, or container id as in `mainstay containers`
    id: String,

    /// Follow new lines
    #[arg(short, long)]
    follow: bool,

    /// Show the last N lines [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    tail: Option<i32>,

    /// Show lines since TIME: RFC 3339, or a duration before now (10m, 2h, 1day)
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    since: Option<jiff::Timestamp>,

    /// Show lines until TIME
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    until: Option<jiff::Timestamp>,

    /// Namespace of the log: `system` for the node's own and its services, `mainstay` for cells, or one of containerd
    #[arg(long, value_name = "NAMESPACE", default_value = "system")]
    namespace: String,

    /// Log of a Kubernetes container, through CRI
    #[arg(short, long, conflicts_with = "namespace")]
    kubernetes: bool,

    /// Log of the previous instance of a restarted container
    #[arg(short, long)]
    previous: bool,
}

impl Logs {
    /// The log of a service.
    pub(super) fn of_service(id: String, follow: bool, tail: Option<i32>) -> Self {
        Self {
            id,
            follow,
            tail,
            since: None,
            until: None,
            namespace: "system".to_owned(),
            kubernetes: false,
            previous: false,
        }
    }

    pub async fn run(self, global: &Global) -> Outcome {
        check_times(self.since, self.until)?;
        let client = connect(global).await?;
        let (namespace, driver) = if self.kubernetes {
            (KUBERNETES.to_owned(), ContainerDriver::Cri)
        } else {
            (self.namespace, ContainerDriver::Containerd)
        };
        let request = LogsRequest {
            namespace,
            id: self.id,
            driver: driver.into(),
            previous: self.previous,
            follow: self.follow,
            tail_lines: self.tail.unwrap_or(-1),
            since: self.since.map(wire_time),
            until: self.until.map(wire_time),
        };
        let mut machine = client.machine();
        let stream = client
            .within(machine.logs(client.request(request)))
            .await?
            .into_inner();
        print_text(&client, global.output, stream).await
    }
}
