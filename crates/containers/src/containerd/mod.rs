//! The containerd driver: containers of all containerd namespaces.
//!
//! A listing takes a fixed number of calls however many containers there are.

mod metrics;
mod record;
mod restart;

use std::collections::HashMap;

use mainstay_container_clients::containerd::containers::ListContainersRequest;
use mainstay_container_clients::containerd::containers::containers_client::ContainersClient;
use mainstay_container_clients::containerd::images::ListImagesRequest;
use mainstay_container_clients::containerd::images::images_client::ImagesClient;
use mainstay_container_clients::containerd::namespaces::ListNamespacesRequest;
use mainstay_container_clients::containerd::namespaces::namespaces_client::NamespacesClient;
use mainstay_container_clients::containerd::task::Process;
use mainstay_container_clients::containerd::tasks::tasks_client::TasksClient;
use mainstay_container_clients::containerd::tasks::{GetRequest, ListTasksRequest, MetricsRequest};
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Response};
use tracing::warn;

use crate::connection::{Connection, MAX_MESSAGE_BYTES};
use crate::container::{Container, Usage, sort};
use crate::error::{ContainerError, NoLog};
use crate::images::Tags;
use crate::log::{self, LogFile};
use record::Record;

#[derive(Debug)]
pub(crate) struct Containerd {
    connection: Connection,
}

impl Containerd {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection }
    }

    pub(crate) async fn namespaces(&self) -> Result<Vec<String>, ContainerError> {
        let mut client = NamespacesClient::new(self.connection.channel())
            .max_decoding_message_size(MAX_MESSAGE_BYTES);
        let request = ListNamespacesRequest::default();
        let call = client.list(request);
        let answer = self.connection.call("list its namespaces", call).await?;
        Ok(answer.namespaces.into_iter().map(|n| n.name).collect())
    }

    pub(crate) async fn list(&self, namespace: &str) -> Result<Vec<Container>, ContainerError> {
        let (records, tasks) = tokio::try_join!(self.records(namespace), self.tasks(namespace))?;
        let untagged = records.iter().any(Record::needs_tag);
        let tags = if untagged {
            self.tags(namespace).await
        } else {
            Tags::default()
        };
        let mut containers: Vec<Container> = records
            .into_iter()
            .map(|record| {
                let task = tasks.get(&record.internal_id);
                record.with(namespace, task, &tags)
            })
            .collect();
        sort(&mut containers);
        Ok(containers)
    }

    pub(crate) async fn usage(
        &self,
        namespace: &str,
    ) -> Result<Vec<(Container, Usage)>, ContainerError> {
        let mut tasks = self.tasks_client();
        let request = request(namespace, MetricsRequest::default())?;
        let metrics = self
            .connection
            .call("measure containers", tasks.metrics(request));
        let (containers, metrics) = tokio::try_join!(self.list(namespace), metrics)?;
        let used: HashMap<String, Usage> = metrics
            .metrics
            .into_iter()
            .filter_map(|metric| Some((metric.id, metrics::usage(&metric.data?)?)))
            .collect();
        let of = |container: &Container| used.get(&container.internal_id).copied();
        Ok(containers
            .into_iter()
            .map(|container| {
                let usage = of(&container).filter(|_| container.pid != 0);
                (container, usage.unwrap_or_default())
            })
            .collect())
    }

    /// Returns the log file of a container that is not part of a pod.
    pub(crate) async fn log(&self, container: &Container) -> Result<LogFile, ContainerError> {
        let id = &container.id;
        let no_log = |why| ContainerError::NoLog {
            id: id.clone(),
            why,
        };
        let task = self
            .task(&container.namespace, &container.internal_id)
            .await?;
        let task = task.ok_or_else(|| no_log(NoLog::NoTask))?;
        let log = log::of_output(id, &task.stdout)?;
        match is_pipe(&log.path).await {
            true => Err(no_log(NoLog::Piped)),
            false => Ok(log),
        }
    }

    async fn records(&self, namespace: &str) -> Result<Vec<Record>, ContainerError> {
        let mut client = ContainersClient::new(self.connection.channel())
            .max_decoding_message_size(MAX_MESSAGE_BYTES);
        let request = request(namespace, ListContainersRequest::default())?;
        // As a stream, because specifications are long and the size of a message is limited.
        let read_all = async {
            let mut stream = client.list_stream(request).await?.into_inner();
            let mut records = Vec::new();
            while let Some(message) = stream.message().await? {
                records.extend(message.container.map(Record::new));
            }
            Ok(Response::new(records))
        };
        self.connection.call("list containers", read_all).await
    }

    async fn tasks(&self, namespace: &str) -> Result<HashMap<String, Process>, ContainerError> {
        let mut client = self.tasks_client();
        let request = request(namespace, ListTasksRequest::default())?;
        let answer = self
            .connection
            .call("list tasks", client.list(request))
            .await?;
        Ok(answer
            .tasks
            .into_iter()
            .map(|task| (task.id.clone(), task))
            .collect())
    }

    async fn task(&self, namespace: &str, id: &str) -> Result<Option<Process>, ContainerError> {
        let mut client = self.tasks_client();
        let message = GetRequest {
            container_id: id.to_owned(),
            ..GetRequest::default()
        };
        let request = request(namespace, message)?;
        let answer = self
            .connection
            .call("show a task", client.get(request))
            .await;
        Ok(unless_missing(answer)?.and_then(|answer| answer.process))
    }

    /// Returns the tags of all images. Without them containers are listed with digests.
    async fn tags(&self, namespace: &str) -> Tags {
        let listed = async {
            let mut client = ImagesClient::new(self.connection.channel())
                .max_decoding_message_size(MAX_MESSAGE_BYTES);
            let request = request(namespace, ListImagesRequest::default())?;
            self.connection
                .call("list images", client.list(request))
                .await
        };
        let images = match listed.await {
            Ok(answer) => answer.images,
            Err(error) => {
                warn!(%error, namespace, "cannot list images; showing digests");
                return Tags::default();
            }
        };
        let mut by_digest: HashMap<String, Vec<String>> = HashMap::new();
        for image in images {
            let digest = image.target.map(|target| target.digest);
            by_digest
                .entry(digest.unwrap_or_default())
                .or_default()
                .push(image.name);
        }
        let mut tags = Tags::default();
        for (digest, names) in by_digest.iter().filter(|(digest, _)| !digest.is_empty()) {
            tags.add(names.iter().chain([digest]).map(String::as_str));
        }
        tags
    }

    fn tasks_client(&self) -> TasksClient<tonic::transport::Channel> {
        TasksClient::new(self.connection.channel()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }
}

fn request<T>(namespace: &str, message: T) -> Result<Request<T>, ContainerError> {
    let value =
        MetadataValue::try_from(namespace).map_err(|_| ContainerError::InvalidNamespace {
            namespace: namespace.to_owned(),
        })?;
    let mut request = Request::new(message);
    request.metadata_mut().insert("containerd-namespace", value);
    Ok(request)
}

/// Maps NOT_FOUND to `None`.
fn unless_missing<T>(answer: Result<T, ContainerError>) -> Result<Option<T>, ContainerError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(ContainerError::Refused { status, .. }) if status.code() == Code::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

async fn is_pipe(path: &std::path::Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    tokio::fs::metadata(path)
        .await
        .is_ok_and(|metadata| metadata.file_type().is_fifo())
}
