//! Values that can be completed: of the client configuration, and of the node.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::time::Duration;

use clap_complete::engine::CompletionCandidate;
use futures_util::StreamExt;
use mainstay_api::common::ContainerDriver;
use mainstay_api::machine::ListRequest;
use mainstay_api::os::{ContainerInfo, ContainersRequest};
use mainstay_api::runtime::{CellStatus, ListCellsRequest};
use mainstay_client::{Client, config_path, load_config, request_to_node};
use tonic::Request;

use super::line::Line;
use crate::commands::containers::KUBERNETES;

/// Bound on the whole answer; a person waits for it at a prompt.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Entries of one directory that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// Mode bit of a directory in the API.
const DIRECTORY: u32 = 1 << 31;

type Candidates = Vec<CompletionCandidate>;

pub fn contexts(current: &OsStr) -> Candidates {
    let config = config();
    let names = config.map(|config| config.contexts.into_keys().collect());
    matching(current, names)
}

/// Nodes that some context names, and its endpoints, which are nodes too.
pub fn nodes(current: &OsStr) -> Candidates {
    let names = config().map(|config| {
        let contexts = config.contexts.into_values();
        let named = contexts.flat_map(|context| context.nodes.into_iter().chain(context.endpoints));
        named.collect::<BTreeSet<_>>().into_iter().collect()
    });
    matching(current, names)
}

pub fn endpoints(current: &OsStr) -> Candidates {
    let names = config().map(|config| {
        let contexts = config.contexts.into_values();
        let named = contexts.flat_map(|context| {
            let socket = context.socket;
            let socket = socket.map(|socket| format!("unix:{}", socket.display()));
            context.endpoints.into_iter().chain(socket)
        });
        named.collect::<BTreeSet<_>>().into_iter().collect()
    });
    matching(current, names)
}

/// Ids of logs, or of containers of the namespace that is named.
pub fn logs(current: &OsStr) -> Candidates {
    let names = ask(async |node| {
        if node.line.has("kubernetes") || node.line.text("namespace").is_some_and(|n| n != "system")
        {
            let containers = list_containers(node).await?;
            return Some(
                containers
                    .into_iter()
                    .map(|container| container.id)
                    .collect(),
            );
        }
        let mut machine = node.client.machine();
        let answer = machine.logs_containers(node.request(())).await.ok()?;
        let messages = answer.into_inner().messages.into_iter();
        Some(messages.flat_map(|message| message.ids).collect())
    });
    matching(current, names)
}

pub fn services(current: &OsStr) -> Candidates {
    let names = ask(async |node| {
        let mut machine = node.client.machine();
        let answer = machine.service_list(node.request(())).await.ok()?;
        let messages = answer.into_inner().messages.into_iter();
        let services = messages.flat_map(|message| message.services);
        Some(services.map(|service| service.id).collect())
    });
    matching(current, names)
}

pub fn containers(current: &OsStr) -> Candidates {
    let names = ask(async |node| {
        let containers = list_containers(node).await?.into_iter();
        Some(containers.map(|container| container.id).collect())
    });
    matching(current, names)
}

pub fn namespaces(current: &OsStr) -> Candidates {
    let names = ask(async |node| {
        let all = ContainersRequest::default();
        let mut machine = node.client.machine();
        let answer = machine.containers(node.request(all)).await;
        let messages = answer.map(|answer| answer.into_inner().messages);
        let containers = messages.unwrap_or_default().into_iter();
        let mut names: BTreeSet<String> = containers
            .flat_map(|message| message.containers)
            .map(|container| container.namespace)
            .collect();
        names.insert("mainstay".to_owned());
        names.insert("system".to_owned());
        Some(names.into_iter().collect())
    });
    matching(current, names)
}

pub fn cells(current: &OsStr) -> Candidates {
    let names = ask(async |node| {
        let cells = list_cells(node, String::new()).await?;
        Some(
            cells
                .into_iter()
                .filter_map(|status| Some(status.cell?.name))
                .collect(),
        )
    });
    matching(current, names)
}

/// Executables of the cell that is named before.
pub fn executables(current: &OsStr) -> Candidates {
    let names = ask(async |node| {
        let cell = node.line.text("cell")?.to_owned();
        let cells = list_cells(node, cell.clone()).await?;
        let is_named = |status: &CellStatus| {
            let found = status.cell.as_ref();
            found.is_some_and(|found| found.name == cell)
        };
        let executables = cells.into_iter().filter(is_named);
        let executables = executables.flat_map(|status| status.executables);
        Some(
            executables
                .filter_map(|status| Some(status.executable?.name))
                .collect(),
        )
    });
    matching(current, names)
}

/// Paths on the node; those of directories end with a slash.
pub fn paths(current: &OsStr) -> Candidates {
    let Some(typed) = current.to_str() else {
        return Vec::new();
    };
    let parent = match typed.rfind('/') {
        Some(slash) => &typed[..=slash],
        None if typed.is_empty() => return vec![CompletionCandidate::new("/")],
        None => return Vec::new(),
    };
    let names = ask(async |node| {
        let request = ListRequest {
            root: parent.to_owned(),
            ..ListRequest::default()
        };
        let mut machine = node.client.machine();
        let answer = machine.list(node.request(request)).await.ok()?;
        let entries = answer.into_inner().take(MAX_ENTRIES);
        let named = entries.filter_map(|entry| async move {
            let entry = entry.ok().filter(|entry| entry.error.is_empty())?;
            let name = entry.relative_name;
            let slash = if entry.mode & DIRECTORY != 0 { "/" } else { "" };
            (name != "." && !name.is_empty()).then(|| format!("{parent}{name}{slash}"))
        });
        Some(named.collect().await)
    });
    matching(current, names)
}

/// Returns the values that start as the current word does. What a terminal could act on is left
/// out: a shell prints candidates as they are.
fn matching(current: &OsStr, values: Option<Vec<String>>) -> Candidates {
    let Some(current) = current.to_str() else {
        return Vec::new();
    };
    let values = values.unwrap_or_default().into_iter();
    values
        .filter(|value| value.starts_with(current))
        .filter(|value| mainstay_client::format::printable(value) == *value)
        .map(CompletionCandidate::new)
        .collect()
}

fn config() -> Option<mainstay_identity::ClientConfig> {
    let options = Line::of_this_process()?.options(TIMEOUT);
    load_config(&config_path(&options).ok()?).ok()
}

/// The node to ask, and the line that is completed.
struct Node {
    client: Client,
    line: Line,
}

impl Node {
    /// Addresses the first node that the line names, else the endpoint.
    fn request<Q>(&self, message: Q) -> Request<Q> {
        request_to_node(self.client.nodes().first().map(String::as_str), message)
    }
}

/// Asks the node of the line within the timeout. Errors and warnings have no place in a completion.
fn ask(question: impl AsyncFnOnce(&Node) -> Option<Vec<String>>) -> Option<Vec<String>> {
    let line = Line::of_this_process()?;
    let options = line.options(TIMEOUT);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let answer = runtime.block_on(async {
        let asked = async {
            let client = Client::connect(&options, |_| ()).await.ok()?;
            question(&Node { client, line }).await
        };
        tokio::time::timeout(TIMEOUT, asked).await.ok().flatten()
    });
    // A name that is still being resolved is abandoned.
    runtime.shutdown_background();
    answer
}

async fn list_containers(node: &Node) -> Option<Vec<ContainerInfo>> {
    let (namespace, driver) = match node.line.has("kubernetes") {
        true => (KUBERNETES.to_owned(), ContainerDriver::Cri),
        false => {
            let named = node.line.text("namespace").unwrap_or_default();
            (named.to_owned(), ContainerDriver::Containerd)
        }
    };
    let request = ContainersRequest {
        namespace,
        driver: driver.into(),
    };
    let mut machine = node.client.machine();
    let answer = machine.containers(node.request(request)).await.ok()?;
    let messages = answer.into_inner().messages.into_iter();
    Some(messages.flat_map(|message| message.containers).collect())
}

async fn list_cells(node: &Node, cell_name: String) -> Option<Vec<CellStatus>> {
    let mut cells = node.client.cells();
    let request = node.request(ListCellsRequest { cell_name });
    let mut level = cells.list(request).await.ok()?.into_inner().cells;
    let mut all = Vec::new();
    while let Some(mut status) = level.pop() {
        level.append(&mut status.children);
        all.push(status);
    }
    all.reverse();
    Some(all)
}
