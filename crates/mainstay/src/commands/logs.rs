//! `mainstay logs`

use clap::Args;
use mainstay_api::common::ContainerDriver;
use mainstay_api::machine::LogsRequest;

use super::connect;
use super::containers::KUBERNETES;
use super::streams::print_text;
use crate::cli::Global;
use crate::failure::Outcome;
use mainstay_client::format::parse_time;
use mainstay_client::format::wire_time;

/// Show a log: the node's own (`mainstay`), its `audit` log, or that of a container
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay logs mainstay --tail 20\n  \
    mainstay logs mainstay -f\n  \
    mainstay logs audit --since 1h\n  \
    mainstay logs mainstay --since 2026-11-15T20:00:00Z --until 2026-11-15T21:00:00Z\n  \
    mainstay logs -k kube-system/coredns-0:coredns -f     a container of Kubernetes\n  \
    mainstay logs -k kube-system/coredns-0:coredns -p     the one that ran before it\n  \
    mainstay logs --namespace default web                 a container of containerd")]
pub struct Logs {
    /// Which log, or which container's, as `mainstay containers` shows it
    id: String,

    /// Go on with new lines as they come
    #[arg(short, long)]
    follow: bool,

    /// Only the last N lines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    tail: Option<i32>,

    /// Only lines from this time on: RFC 3339, or how long ago (10m, 2h, 1day)
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    since: Option<jiff::Timestamp>,

    /// Only lines up to this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    until: Option<jiff::Timestamp>,

    /// The namespace the log belongs to: `system` for the node's own, or one of containerd
    #[arg(long, value_name = "NAMESPACE", default_value = "system")]
    namespace: String,

    /// The log of a container of Kubernetes, through CRI
    #[arg(short, long, conflicts_with = "namespace")]
    kubernetes: bool,

    /// Of the instance before, when the container was started again
    #[arg(short, long)]
    previous: bool,
}

impl Logs {
    pub async fn run(self, global: &Global) -> Outcome {
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
