//! Listing of pods and their containers.

use std::collections::HashMap;

use futures_util::{StreamExt, stream};
use mainstay_container_clients::cri::runtime_service_client::RuntimeServiceClient;
use mainstay_container_clients::cri::{
    self as api, ContainerState, ContainerStatusRequest, ListContainersRequest, ListImagesRequest,
    ListPodSandboxRequest, PodSandbox, PodSandboxState, PodSandboxStatusRequest,
};
use tonic::transport::Channel;
use tracing::warn;

use super::info::Info;
use super::{Cri, KUBERNETES};
use crate::container::{Container, sort};
use crate::error::ContainerError;
use crate::images::{Tags, has_tag};
use crate::names::Names;

/// The number of concurrent status calls.
const MAX_CONCURRENT: usize = 16;

impl Cri {
    pub(crate) async fn list(&self) -> Result<Vec<Container>, ContainerError> {
        let (pods, inside) = self.all().await?;
        let untagged = inside.iter().any(|container| !has_tag(image(container)));
        // A stopped container has no PID; a stopped sandbox still has its image.
        let pod_ids = pods.iter().map(|pod| pod.id.clone()).collect();
        let running = inside
            .iter()
            .filter(|container| container.state() == ContainerState::ContainerRunning)
            .map(|container| container.id.clone())
            .collect();
        let (infos, tags) = tokio::join!(self.infos(pod_ids, running), self.tags(untagged));
        Ok(assembled(&pods, &inside, &infos, &tags))
    }

    /// Lists the containers without images, PIDs and networks: enough to select one.
    pub(crate) async fn brief_list(&self) -> Result<Vec<Container>, ContainerError> {
        let (pods, inside) = self.all().await?;
        Ok(assembled(&pods, &inside, &HashMap::new(), &Tags::default()))
    }

    async fn all(&self) -> Result<(Vec<PodSandbox>, Vec<api::Container>), ContainerError> {
        let (mut pods, mut inside) = (self.runtime(), self.runtime());
        let pods = pods.list_pod_sandbox(ListPodSandboxRequest::default());
        let inside = inside.list_containers(ListContainersRequest::default());
        let (pods, inside) = tokio::try_join!(
            self.connection.call("list pods", pods),
            self.connection.call("list containers", inside),
        )?;
        Ok((pods.items, inside.containers))
    }

    /// Returns the runtime's details by id, without those that fail or come too late: the
    /// containers are listed all the same.
    async fn infos(&self, pods: Vec<String>, running: Vec<String>) -> HashMap<String, Info> {
        let (client, other) = (self.runtime(), self.runtime());
        let pods = stream::iter(pods).map(move |id| pod_info(client.clone(), id));
        let running = stream::iter(running).map(move |id| container_info(other.clone(), id));
        let mut received = stream::select(
            pods.buffer_unordered(MAX_CONCURRENT),
            running.buffer_unordered(MAX_CONCURRENT),
        );
        let mut infos = HashMap::new();
        let receive_all = async {
            while let Some(one) = received.next().await {
                infos.extend(one);
            }
        };
        let in_time = tokio::time::timeout(self.connection.timeout(), receive_all).await;
        if in_time.is_err() {
            warn!(
                received = infos.len(),
                "CRI timed out; listing containers without PIDs"
            );
        }
        infos
    }

    /// Returns the tags of all images. Without them containers are listed with digests.
    async fn tags(&self, needed: bool) -> Tags {
        let mut tags = Tags::default();
        if !needed {
            return tags;
        }
        let mut client = self.images();
        let call = client.list_images(ListImagesRequest::default());
        match self.connection.call("list images", call).await {
            Ok(answer) => {
                for image in &answer.images {
                    let names = image.repo_tags.iter().chain(&image.repo_digests);
                    tags.add(names.chain([&image.id]).map(String::as_str));
                }
            }
            Err(error) => warn!(%error, "cannot list images; showing digests"),
        }
        tags
    }
}

async fn pod_info(mut client: RuntimeServiceClient<Channel>, id: String) -> Option<(String, Info)> {
    let request = PodSandboxStatusRequest {
        pod_sandbox_id: id.clone(),
        verbose: true,
    };
    let answer = client.pod_sandbox_status(request).await.ok()?;
    Some((id, Info::parse(&answer.get_ref().info)))
}

async fn container_info(
    mut client: RuntimeServiceClient<Channel>,
    id: String,
) -> Option<(String, Info)> {
    let request = ContainerStatusRequest {
        container_id: id.clone(),
        verbose: true,
    };
    let answer = client.container_status(request).await.ok()?;
    Some((id, Info::parse(&answer.get_ref().info)))
}

fn assembled(
    pods: &[PodSandbox],
    inside: &[api::Container],
    infos: &HashMap<String, Info>,
    tags: &Tags,
) -> Vec<Container> {
    let none = Info::default();
    let info = |id: &str| infos.get(id).unwrap_or(&none);
    let by_id: HashMap<&str, &PodSandbox> = pods.iter().map(|pod| (&*pod.id, pod)).collect();
    let mut all: Vec<Container> = pods.iter().map(|pod| sandbox(pod, info(&pod.id))).collect();
    all.extend(inside.iter().map(|container| {
        let pod = by_id.get(&*container.pod_sandbox_id).copied();
        let network = info(&container.pod_sandbox_id).network_namespace();
        in_pod(container, pod, info(&container.id).pid, network, tags)
    }));
    sort(&mut all);
    all
}

fn image(container: &api::Container) -> &str {
    let wanted = container.image.as_ref().map(|image| image.image.as_str());
    wanted
        .filter(|image| !image.is_empty())
        .unwrap_or(&container.image_ref)
}

fn sandbox(pod: &PodSandbox, info: &Info) -> Container {
    let names = pod.metadata.as_ref().map_or_else(
        || Names::plain(&pod.id),
        |metadata| Names::sandbox(&metadata.namespace, &metadata.name, &metadata.uid),
    );
    let state = pod.state();
    let running = state == PodSandboxState::SandboxReady;
    Container {
        namespace: KUBERNETES.to_owned(),
        id: names.id,
        pod_id: names.pod_id,
        name: names.name,
        internal_id: pod.id.clone(),
        uid: names.uid,
        image: info.image.clone(),
        pid: if running { info.pid } else { 0 },
        status: match state {
            PodSandboxState::SandboxReady => "SANDBOX_READY",
            PodSandboxState::SandboxNotready => "SANDBOX_NOTREADY",
        },
        network_namespace: info.network_namespace(),
        kind: crate::Kind::Sandbox,
        running,
        created: pod.created_at,
    }
}

fn in_pod(
    container: &api::Container,
    pod: Option<&PodSandbox>,
    pid: u32,
    network_namespace: String,
    tags: &Tags,
) -> Container {
    let pod = pod.and_then(|pod| pod.metadata.as_ref()).map_or_else(
        || Names::plain(&container.pod_sandbox_id),
        |metadata| Names::sandbox(&metadata.namespace, &metadata.name, &metadata.uid),
    );
    let name = container
        .metadata
        .as_ref()
        .map(|metadata| metadata.name.as_str());
    let names = Names::in_pod(&pod.id, name.unwrap_or(&container.id), &pod.uid);
    let state = container.state();
    let running = state == ContainerState::ContainerRunning;
    Container {
        namespace: KUBERNETES.to_owned(),
        id: names.id,
        pod_id: names.pod_id,
        name: names.name,
        internal_id: container.id.clone(),
        uid: names.uid,
        image: tags.name(image(container)),
        pid: if running { pid } else { 0 },
        status: match state {
            ContainerState::ContainerCreated => "CONTAINER_CREATED",
            ContainerState::ContainerRunning => "CONTAINER_RUNNING",
            ContainerState::ContainerExited => "CONTAINER_EXITED",
            ContainerState::ContainerUnknown => "CONTAINER_UNKNOWN",
        },
        network_namespace,
        kind: names.kind,
        running,
        created: container.created_at,
    }
}
