//! The readings of an archive, one after another, each of all nodes at once.

use std::collections::{BTreeSet, HashMap};

use futures_util::{Stream, StreamExt};
use indicatif::ProgressBar;
use mainstay_api::Reply;
use mainstay_api::common::{ContainerDriver, Data, Metadata};
use mainstay_api::machine::{EventsRequest, LogsRequest, NetstatRequest};
use mainstay_api::mainstay::CgroupsRequest;
use mainstay_api::mainstay::node_service_client::NodeServiceClient;
use mainstay_api::network::network_service_client::NetworkServiceClient;
use mainstay_api::os::{ContainersRequest, DmesgRequest, StatsRequest};
use mainstay_api::runtime::{CellStatus, ListCellsRequest};
use mainstay_api::storage::storage_service_client::StorageServiceClient;
use mainstay_api::time::time_service_client::TimeServiceClient;
use mainstay_client::format::{printable, to_json};
use mainstay_client::{
    Answer, Client, Error, ErrorKind, MAX_MESSAGE_BYTES, Machine, Replies, request_to_node,
};
use prost::{Message, Name};
use tonic::{Request, Response, Status};

use super::archive::Archive;
use super::errors::Errors;
use super::file_name::file_name;
use super::tail::Tail;
use crate::commands::containers::KUBERNETES;
use crate::commands::events::EventLine;
use crate::connection::Connection;
use crate::failure::{Failure, Outcome};

/// The namespace of cells in `Logs`.
const CELLS: &str = "mainstay";
/// The namespace of the node's own logs.
const SYSTEM: &str = "system";
/// Logs of one node; further ones are listed as errors.
const MAX_LOGS: usize = 256;
/// Readings of all nodes together, and of each node, for the progress bar.
const READINGS: usize = 24;
const READINGS_PER_NODE: usize = 2;

pub(super) struct Collector<'a> {
    client: &'a Connection,
    archive: &'a mut Archive,
    tail: i32,
    progress: &'a ProgressBar,
    errors: Errors,
    /// The directory of each node.
    directories: HashMap<String, String>,
    /// Logs of each node: namespace and id.
    logs: Vec<(String, &'static str, String)>,
}

/// Whether a machine may lack what a reading is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Always,
    Optional,
}

impl<'a> Collector<'a> {
    pub(super) fn new(
        client: &'a Connection,
        archive: &'a mut Archive,
        tail: i32,
        progress: &'a ProgressBar,
    ) -> Self {
        let nodes = client.nodes().len().max(1);
        progress.set_length((READINGS + READINGS_PER_NODE * nodes) as u64);
        Self {
            client,
            archive,
            tail,
            progress,
            errors: Errors::default(),
            directories: HashMap::new(),
            logs: Vec::new(),
        }
    }

    pub(super) fn into_errors(self) -> Errors {
        self.errors
    }

    /// Collects everything. Fails only if the archive cannot be written.
    pub(super) async fn run(&mut self) -> Outcome {
        use Presence::{Always, Optional};
        let channel = self.client.channel();
        let network = || {
            NetworkServiceClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
        };
        let node =
            || NodeServiceClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let storage = || {
            StorageServiceClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
        };
        let time = || TimeServiceClient::new(channel.clone());
        macro_rules! read {
            ($file:literal, $presence:expr, $request:expr, $method:ident) => {
                self.read(
                    $file,
                    $presence,
                    $request,
                    |mut machine, request| async move { machine.$method(request).await },
                )
                .await?
            };
            ($file:literal, $presence:expr, $request:expr, $service:ident.$method:ident) => {
                self.read($file, $presence, $request, |_, request| {
                    let mut service = $service();
                    async move { service.$method(request).await }
                })
                .await?
            };
        }
        let all = || ContainersRequest {
            namespace: String::new(),
            driver: ContainerDriver::Containerd.into(),
        };
        let kubernetes = || ContainersRequest {
            namespace: KUBERNETES.to_owned(),
            driver: ContainerDriver::Cri.into(),
        };
        let stats = |namespace: &str| StatsRequest {
            namespace: namespace.to_owned(),
            driver: ContainerDriver::Containerd.into(),
        };
        read!("version", Always, (), version);
        read!("hostname", Always, (), hostname);
        read!("load", Always, (), load_avg);
        read!("memory", Always, (), memory);
        read!("cpus", Always, (), cpu_info);
        read!("cpu-frequencies", Always, (), cpu_freq_stats);
        read!("system", Always, (), system_stat);
        read!("processes", Always, (), processes);
        read!("mounts", Always, (), mounts);
        read!("disks", Always, (), storage.disks);
        read!("disk-counters", Always, (), disk_stats);
        read!("interfaces", Always, (), network.interfaces);
        read!("routes", Always, (), network.routes);
        read!("network-counters", Always, (), network_device_stats);
        let netstat = NetstatRequest::default();
        read!("netstat", Always, netstat, netstat);
        let cgroups = CgroupsRequest::default();
        read!("cgroups", Always, cgroups, node.cgroups);
        read!("time", Optional, (), time.time);
        read!("containers", Optional, all(), containers);
        read!("kubernetes", Optional, kubernetes(), containers);
        read!("container-stats", Optional, stats(""), stats);
        read!("cell-stats", Always, stats(CELLS), stats);
        self.configuration().await?;
        self.cells().await?;
        self.log_ids().await?;
        for node in self.nodes() {
            self.events(&node).await?;
            self.dmesg(&node).await?;
        }
        self.all_logs().await
    }

    /// The nodes as they are named in the archive.
    fn nodes(&self) -> Vec<Option<String>> {
        match self.client.nodes() {
            [] => vec![None],
            named => named.iter().cloned().map(Some).collect(),
        }
    }

    /// Reads one message of every node into a JSON file each.
    async fn read<Q, R, F>(
        &mut self,
        file: &str,
        presence: Presence,
        message: Q,
        call: impl Fn(Machine, Request<Q>) -> F,
    ) -> Outcome
    where
        Q: Clone,
        R: Reply,
        R::Message: Message + Name,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        self.step(file);
        let client: &Client = self.client;
        let replies = client.call_all(client.timeout(), message, call).await;
        let answers = self.answers(file, presence, replies);
        for Answer { node, message } in answers {
            self.add_json(&node, file, &message).await?;
        }
        Ok(())
    }

    async fn configuration(&mut self) -> Outcome {
        self.step("configuration");
        let client: &Client = self.client;
        let replies = client
            .call_all(client.timeout(), (), |_, request| {
                let mut node = NodeServiceClient::new(client.channel());
                async move { node.configuration(request).await }
            })
            .await;
        let answers = self.answers("configuration", Presence::Always, replies);
        for Answer { node, message } in answers {
            let mut text = match message.file.as_str() {
                "" => "# no configuration file\n".to_owned(),
                file => format!("# {}\n", printable(file)),
            };
            for key in message.pending_restart {
                text.push_str(&format!("# takes effect on restart: {}\n", printable(&key)));
            }
            text.push_str(&message.toml);
            self.add(&node, "configuration.toml", text.into_bytes())
                .await?;
        }
        Ok(())
    }

    async fn cells(&mut self) -> Outcome {
        self.step("cells");
        let client: &Client = self.client;
        let request = ListCellsRequest::default();
        let replies = client
            .call_each(client.timeout(), &request, |request| {
                let mut cells = client.cells();
                async move { cells.list(request).await }
            })
            .await;
        for Answer { node, message } in self.answers("cells", Presence::Always, replies) {
            let mut pending: Vec<&CellStatus> = message.cells.iter().collect();
            while let Some(cell) = pending.pop() {
                for executable in &cell.executables {
                    self.logs
                        .push((node.clone(), CELLS, executable.log.clone()));
                }
                pending.extend(&cell.children);
            }
            self.add_json(&node, "cells", &message).await?;
        }
        Ok(())
    }

    async fn log_ids(&mut self) -> Outcome {
        self.step("logs");
        let client: &Client = self.client;
        let replies = client
            .call_all(client.timeout(), (), |mut machine, request| async move {
                machine.logs_containers(request).await
            })
            .await;
        for Answer { node, message } in self.answers("logs", Presence::Always, replies) {
            for id in message.ids {
                self.logs.push((node.clone(), SYSTEM, id));
            }
        }
        Ok(())
    }

    async fn events(&mut self, node: &Option<String>) -> Outcome {
        self.step("events");
        let request = EventsRequest {
            tail_events: self.tail,
            until_now: true,
            ..EventsRequest::default()
        };
        let request = request_to_node(node.as_deref(), request);
        let name = self.name_of(node);
        let mut machine = self.client.machine();
        let started = self.client.within(machine.events(request)).await;
        let mut lines = Tail::default();
        match started {
            Ok(stream) => {
                let mut stream = stream.into_inner();
                let mut failed = None;
                while let Some(event) = self.next(&mut stream, &mut failed).await {
                    if let Some(line) = EventLine::decode(&event) {
                        lines.push(format!("{}\n", line.value(&name)).as_bytes());
                    }
                }
                self.end_of_stream(&name, "events", failed);
            }
            Err(error) => return self.failed(&name, "events", Presence::Always, &error),
        }
        self.add(&name, "events.jsonl", lines.into_bytes()).await
    }

    async fn dmesg(&mut self, node: &Option<String>) -> Outcome {
        self.step("dmesg");
        let request = request_to_node(node.as_deref(), DmesgRequest::default());
        let name = self.name_of(node);
        let mut machine = self.client.machine();
        let started = self.client.within(machine.dmesg(request)).await;
        self.text(&name, "dmesg", "dmesg.log", started).await
    }

    async fn all_logs(&mut self) -> Outcome {
        let logs = std::mem::take(&mut self.logs);
        self.progress.inc_length(logs.len() as u64);
        let mut counts: HashMap<String, usize> = HashMap::new();
        for (node, namespace, id) in logs {
            let reading = format!("log {id}");
            self.step(&reading);
            let count = counts.entry(node.clone()).or_default();
            *count += 1;
            if *count > MAX_LOGS {
                let failure = Failure::usage(format!("more than {MAX_LOGS} logs; left out"));
                self.errors.add(&node, &reading, failure, false);
                continue;
            }
            let request = LogsRequest {
                namespace: namespace.to_owned(),
                id: id.clone(),
                driver: ContainerDriver::Containerd.into(),
                tail_lines: self.tail,
                ..LogsRequest::default()
            };
            let asked = self.client.nodes().contains(&node).then_some(node.as_str());
            let request = request_to_node(asked, request);
            let mut machine = self.client.machine();
            let started = self.client.within(machine.logs(request)).await;
            let file = format!("logs/{}.log", file_name(&format!("{namespace}-{id}")));
            self.text(&node, &reading, &file, started).await?;
        }
        Ok(())
    }

    /// Reads a stream of text into a file.
    async fn text(
        &mut self,
        node: &str,
        reading: &str,
        file: &str,
        started: Result<Response<tonic::Streaming<Data>>, Error>,
    ) -> Outcome {
        let mut stream = match started {
            Ok(stream) => stream.into_inner(),
            Err(error) => return self.failed(node, reading, Presence::Always, &error),
        };
        let mut text = Tail::default();
        let mut failed = None;
        while let Some(data) = self.next(&mut stream, &mut failed).await {
            let metadata: Option<&Metadata> = data.metadata.as_ref();
            if let Some(metadata) = metadata.filter(|metadata| metadata.status.is_some()) {
                failed = Some(Error::of_node(metadata));
                break;
            }
            text.push(&data.bytes);
        }
        self.end_of_stream(node, reading, failed);
        self.add(node, file, text.into_bytes()).await
    }

    /// Waits for the next message; a stream that stalls or fails ends with the reason.
    async fn next<T>(
        &self,
        stream: &mut (impl Stream<Item = Result<T, Status>> + Unpin),
        failed: &mut Option<Error>,
    ) -> Option<T> {
        match tokio::time::timeout(self.client.timeout(), stream.next()).await {
            Ok(Some(Ok(message))) => Some(message),
            Ok(Some(Err(status))) => {
                *failed = Some(status.into());
                None
            }
            Ok(None) => None,
            Err(_) => {
                *failed = Some(Error::Timeout(self.client.timeout()));
                None
            }
        }
    }

    /// Records an answer, and the error that ended it early.
    fn end_of_stream(&mut self, node: &str, reading: &str, failed: Option<Error>) {
        self.errors.answer(node);
        if let Some(error) = failed {
            let failure = Failure::from(&error);
            self.errors.add(node, reading, failure, false);
        }
    }

    fn answers<M>(
        &mut self,
        reading: &str,
        presence: Presence,
        replies: Result<Replies<M>, Error>,
    ) -> Vec<Answer<M>> {
        match replies {
            Ok(replies) => {
                for failed in replies.errors {
                    self.note(&failed.node, reading, presence, &failed.error);
                }
                for answer in &replies.answers {
                    self.errors.answer(&answer.node);
                }
                replies.answers
            }
            Err(error) => {
                for node in self.nodes() {
                    let name = self.name_of(&node);
                    self.note(&name, reading, presence, &error);
                }
                Vec::new()
            }
        }
    }

    fn failed(&mut self, node: &str, reading: &str, presence: Presence, error: &Error) -> Outcome {
        self.note(node, reading, presence, error);
        Ok(())
    }

    fn note(&mut self, node: &str, reading: &str, presence: Presence, error: &Error) {
        let absent = presence == Presence::Optional
            && matches!(
                error.kind(),
                ErrorKind::Unreachable | ErrorKind::Unimplemented
            );
        let failure = Failure::from(error);
        self.errors.add(node, reading, failure, absent);
    }

    async fn add_json<M: Message + Name>(
        &mut self,
        node: &str,
        file: &str,
        message: &M,
    ) -> Outcome {
        let value = to_json(&M::full_name(), message);
        let text = format!("{value:#}\n");
        self.add(node, &format!("{file}.json"), text.into_bytes())
            .await
    }

    async fn add(&mut self, node: &str, file: &str, content: Vec<u8>) -> Outcome {
        let directory = self.directory(node);
        self.archive
            .add(&format!("{directory}/{file}"), content)
            .await
    }

    /// The directory of a node: its name, made unique and safe.
    fn directory(&mut self, node: &str) -> String {
        if let Some(known) = self.directories.get(node) {
            return known.clone();
        }
        let used: BTreeSet<&String> = self.directories.values().collect();
        let name = file_name(node);
        let mut directory = name.clone();
        let mut number = 1;
        while used.contains(&directory) || directory == "errors.txt" {
            number += 1;
            directory = format!("{name}-{number}");
        }
        self.directories.insert(node.to_owned(), directory.clone());
        directory
    }

    fn name_of(&self, node: &Option<String>) -> String {
        node.clone().unwrap_or_else(|| self.client.node_name(None))
    }

    fn step(&self, what: &str) {
        self.progress.set_message(what.to_owned());
        self.progress.inc(1);
    }
}
