//! Restart of a container that is not part of a pod: its task is stopped, and a new one created
//! with the same specification, root file system and output.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use mainstay_container_clients::containerd::containers::containers_client::ContainersClient;
use mainstay_container_clients::containerd::containers::{
    Container as Record, GetContainerRequest,
};
use mainstay_container_clients::containerd::snapshots::MountsRequest;
use mainstay_container_clients::containerd::snapshots::snapshots_client::SnapshotsClient;
use mainstay_container_clients::containerd::task::{Process, Status};
use mainstay_container_clients::containerd::tasks::{
    CreateTaskRequest, DeleteTaskRequest, KillRequest, ResumeTaskRequest, StartRequest, WaitRequest,
};
use mainstay_container_clients::containerd::types::Mount;
use nix::sys::signal::Signal;
use tokio::net::unix::pipe;

use super::{Containerd, request, unless_missing};
use crate::connection::MAX_MESSAGE_BYTES;
use crate::container::Container;
use crate::error::ContainerError;

/// The time between the stop signal and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);

/// The label with the stop signal of the image.
const STOP_SIGNAL: &str = "io.containerd.image.config.stop-signal";
/// The label of containers that Docker manages.
const OF_DOCKER: &str = "com.docker/engine.bundle.path";

impl Containerd {
    pub(crate) async fn restart(&self, container: &Container) -> Result<(), ContainerError> {
        let id = &container.id;
        let record = self.record(container).await?;
        if record.labels.contains_key(OF_DOCKER) {
            return Err(ContainerError::OfDocker { id: id.clone() });
        }
        let task = self
            .task(&container.namespace, &container.internal_id)
            .await?;
        let streams = Streams::of(id, task.as_ref()).await?;
        // Before anything is stopped: a container that could not be started again keeps running.
        let rootfs = self.rootfs(&container.namespace, &record).await?;
        if let Some(task) = task {
            self.stop(container, &record, &task).await?;
        }
        self.start(container, rootfs, streams)
            .await
            .map_err(|error| ContainerError::NotStarted {
                id: id.clone(),
                source: Box::new(error),
            })
    }

    async fn record(&self, container: &Container) -> Result<Record, ContainerError> {
        let mut client = ContainersClient::new(self.connection.channel())
            .max_decoding_message_size(MAX_MESSAGE_BYTES);
        let message = GetContainerRequest {
            id: container.internal_id.clone(),
        };
        let request = request(&container.namespace, message)?;
        let answer = self
            .connection
            .call("show a container", client.get(request))
            .await;
        unless_missing(answer)?
            .and_then(|answer| answer.container)
            .ok_or_else(|| ContainerError::NotFound {
                id: container.id.clone(),
            })
    }

    /// Returns the mounts of the root file system; none if the specification names its root.
    async fn rootfs(&self, namespace: &str, record: &Record) -> Result<Vec<Mount>, ContainerError> {
        if record.snapshot_key.is_empty() {
            return Ok(Vec::new());
        }
        let mut client = SnapshotsClient::new(self.connection.channel());
        let message = MountsRequest {
            snapshotter: record.snapshotter.clone(),
            key: record.snapshot_key.clone(),
        };
        let call = client.mounts(request(namespace, message)?);
        let what = "show the container's root file system";
        Ok(self.connection.call(what, call).await?.mounts)
    }

    /// Stops the task, with SIGKILL after the grace period, and deletes it.
    async fn stop(
        &self,
        container: &Container,
        record: &Record,
        task: &Process,
    ) -> Result<(), ContainerError> {
        if matches!(task.status(), Status::Paused | Status::Pausing) {
            self.resume(container).await?;
        }
        if task.status() != Status::Stopped {
            let signalled = self.signal(container, stop_signal(record)).await?;
            if signalled && !self.exited_within(container, GRACE).await? {
                let killed = self.signal(container, Signal::SIGKILL).await?;
                let timeout = self.connection.timeout();
                if killed && !self.exited_within(container, timeout).await? {
                    return Err(ContainerError::Unstoppable {
                        id: container.id.clone(),
                    });
                }
            }
        }
        let message = DeleteTaskRequest {
            container_id: container.internal_id.clone(),
        };
        let mut client = self.tasks_client();
        let call = client.delete(request(&container.namespace, message)?);
        // The client that started it may delete it as well.
        unless_missing(self.connection.call("delete the old task", call).await)?;
        Ok(())
    }

    async fn resume(&self, container: &Container) -> Result<(), ContainerError> {
        let message = ResumeTaskRequest {
            container_id: container.internal_id.clone(),
        };
        let mut client = self.tasks_client();
        let call = client.resume(request(&container.namespace, message)?);
        self.connection.call("resume the container", call).await
    }

    /// Sends a signal; false if no process is left.
    async fn signal(&self, container: &Container, signal: Signal) -> Result<bool, ContainerError> {
        let message = KillRequest {
            container_id: container.internal_id.clone(),
            signal: u32::try_from(signal as i32).unwrap_or_default(),
            ..KillRequest::default()
        };
        let mut client = self.tasks_client();
        let call = client.kill(request(&container.namespace, message)?);
        let answer = self.connection.call("signal the container", call).await;
        Ok(unless_missing(answer)?.is_some())
    }

    async fn exited_within(
        &self,
        container: &Container,
        time: Duration,
    ) -> Result<bool, ContainerError> {
        let message = WaitRequest {
            container_id: container.internal_id.clone(),
            ..WaitRequest::default()
        };
        let mut client = self.tasks_client();
        let call = client.wait(request(&container.namespace, message)?);
        let what = "wait for the container to exit";
        match unless_missing(self.connection.call_within(time, what, call).await) {
            Ok(_) => Ok(true),
            Err(ContainerError::Silent { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn start(
        &self,
        container: &Container,
        rootfs: Vec<Mount>,
        streams: Streams,
    ) -> Result<(), ContainerError> {
        let namespace = &container.namespace;
        let mut client = self.tasks_client();
        let held_open = streams.hold_open();
        let message = CreateTaskRequest {
            container_id: container.internal_id.clone(),
            rootfs,
            stdin: streams.stdin,
            stdout: streams.stdout,
            stderr: streams.stderr,
            terminal: streams.terminal,
            ..CreateTaskRequest::default()
        };
        let call = client.create(request(namespace, message)?);
        self.connection.call("create a new task", call).await?;
        drop(held_open);
        let message = StartRequest {
            container_id: container.internal_id.clone(),
            ..StartRequest::default()
        };
        let call = client.start(request(namespace, message)?);
        self.connection.call("start the new task", call).await?;
        Ok(())
    }
}

fn stop_signal(record: &Record) -> Signal {
    let label = record.labels.get(STOP_SIGNAL).map(String::as_str);
    let number = |text: &str| Signal::try_from(text.parse::<i32>().ok()?).ok();
    label
        .and_then(|text| Signal::from_str(text).ok().or_else(|| number(text)))
        .unwrap_or(Signal::SIGTERM)
}

/// Standard input and output of a task.
#[derive(Debug, Default)]
struct Streams {
    stdin: String,
    stdout: String,
    stderr: String,
    terminal: bool,
}

impl Streams {
    /// Takes the streams of the old task, without FIFOs that its client has removed.
    async fn of(id: &str, task: Option<&Process>) -> Result<Self, ContainerError> {
        let Some(task) = task else {
            return Ok(Self::default());
        };
        let streams = Self {
            stdin: unless_removed(&task.stdin).await,
            stdout: unless_removed(&task.stdout).await,
            stderr: unless_removed(&task.stderr).await,
            terminal: task.terminal,
        };
        if streams.terminal && streams.stdout.is_empty() {
            return Err(ContainerError::Detached { id: id.to_owned() });
        }
        Ok(streams)
    }

    /// Opens the FIFOs for reading, without reading: a new task blocks until they have a reader, and
    /// then holds them open itself. The client that read them may be gone.
    fn hold_open(&self) -> Vec<pipe::Receiver> {
        let pipes = [&self.stdout, &self.stderr].into_iter();
        pipes
            .filter(|stream| Path::new(stream).is_absolute())
            .filter_map(|stream| pipe::OpenOptions::new().open_receiver(stream).ok())
            .collect()
    }
}

async fn unless_removed(stream: &str) -> String {
    let there =
        !Path::new(stream).is_absolute() || tokio::fs::try_exists(stream).await.unwrap_or(false);
    if there {
        stream.to_owned()
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stop_signal_of_the_image_is_used_if_valid() {
        let record = |wish: &str| Record {
            labels: [(STOP_SIGNAL.to_owned(), wish.to_owned())].into(),
            ..Record::default()
        };
        assert_eq!(stop_signal(&record("SIGQUIT")), Signal::SIGQUIT);
        assert_eq!(stop_signal(&record("3")), Signal::SIGQUIT);
        for none in ["", "SIGNONE", "-1", "99999"] {
            assert_eq!(stop_signal(&record(none)), Signal::SIGTERM);
        }
        assert_eq!(stop_signal(&Record::default()), Signal::SIGTERM);
    }
}
