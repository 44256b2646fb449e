use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use mainstay_container_clients::cri::image_service_client::ImageServiceClient;
use mainstay_container_clients::cri::runtime_service_client::RuntimeServiceClient;
use mainstay_container_clients::cri::{
    ContainerConfig, ContainerMetadata, CreateContainerRequest, ImageSpec, ImageStatusRequest,
    LinuxPodSandboxConfig, LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption,
    PodSandboxConfig, PodSandboxMetadata, RunPodSandboxRequest, StartContainerRequest,
};
use tonic::transport::Channel;

use super::TestContainerd;
use crate::images::{BUSYBOX, PAUSE};
use crate::{WAIT_TIMEOUT, connect_unix};

/// A pod with the host's network, in which containers are started one by one.
pub struct Pod {
    pub id: String,
    config: PodSandboxConfig,
    client: RuntimeServiceClient<Channel>,
}

impl TestContainerd {
    pub async fn connect(&self) -> Channel {
        connect_unix(&self.socket()).await.unwrap()
    }

    /// Runs a pod sandbox, named and labelled as a kubelet does.
    pub async fn pod(&self, name: &str) -> Pod {
        let channel = self.connect().await;
        wait_for_images(channel.clone()).await;
        let config = self.sandbox_config(name);
        let mut client = RuntimeServiceClient::new(channel);
        let request = RunPodSandboxRequest {
            config: Some(config.clone()),
            ..RunPodSandboxRequest::default()
        };
        let sandbox = client.run_pod_sandbox(request).await.unwrap();
        Pod {
            id: sandbox.into_inner().pod_sandbox_id,
            config,
            client,
        }
    }

    fn sandbox_config(&self, name: &str) -> PodSandboxConfig {
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.to_owned(),
                uid: format!("uid-of-{name}"),
                namespace: "shop".to_owned(),
                attempt: 0,
            }),
            log_directory: self.scratch().join("pods").join(name).display().to_string(),
            labels: pod_labels(name),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: format!("/{}/{name}", self.sweeper.cgroup()),
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(NamespaceOption {
                        network: NamespaceMode::Node.into(),
                        ..NamespaceOption::default()
                    }),
                    ..LinuxSandboxSecurityContext::default()
                }),
                ..LinuxPodSandboxConfig::default()
            }),
            ..PodSandboxConfig::default()
        }
    }
}

impl Pod {
    /// Starts a container that runs a shell script, and returns its id. Each attempt has a log of
    /// its own.
    pub async fn run(&mut self, name: &str, attempt: u32, script: &str) -> String {
        let id = self.create(name, attempt, script).await;
        let request = StartContainerRequest {
            container_id: id.clone(),
        };
        self.client.start_container(request).await.unwrap();
        id
    }

    async fn create(&mut self, name: &str, attempt: u32, script: &str) -> String {
        let pod = &self.config.metadata.as_ref().unwrap().name;
        let log_path = self.log_file(name, attempt);
        std::fs::create_dir_all(log_path.parent().unwrap()).unwrap();
        let mut labels = pod_labels(pod);
        labels.insert("io.kubernetes.container.name".to_owned(), name.to_owned());
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: name.to_owned(),
                attempt,
            }),
            image: Some(image_spec(BUSYBOX)),
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            log_path: format!("{name}/{attempt}.log"),
            labels,
            ..ContainerConfig::default()
        };
        let request = CreateContainerRequest {
            pod_sandbox_id: self.id.clone(),
            config: Some(config),
            sandbox_config: Some(self.config.clone()),
        };
        let created = self.client.create_container(request).await.unwrap();
        created.into_inner().container_id
    }

    pub fn log_file(&self, name: &str, attempt: u32) -> PathBuf {
        Path::new(&self.config.log_directory).join(format!("{name}/{attempt}.log"))
    }

    pub fn client(&self) -> RuntimeServiceClient<Channel> {
        self.client.clone()
    }
}

/// Waits until the CRI plugin lists the images. It learns of an import a moment later, by an event,
/// and offers nothing to wait on: each question is a round trip to it, and there is a bound.
async fn wait_for_images(channel: Channel) {
    let mut client = ImageServiceClient::new(channel);
    let deadline = Instant::now() + WAIT_TIMEOUT;
    for image in [BUSYBOX, PAUSE] {
        let request = ImageStatusRequest {
            image: Some(image_spec(image)),
            ..ImageStatusRequest::default()
        };
        loop {
            let status = client.image_status(request.clone()).await.unwrap();
            if status.into_inner().image.is_some() {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "the CRI plugin does not list {image} within {WAIT_TIMEOUT:?}"
            );
        }
    }
}

fn pod_labels(name: &str) -> HashMap<String, String> {
    [
        ("io.kubernetes.pod.name", name.to_owned()),
        ("io.kubernetes.pod.namespace", "shop".to_owned()),
        ("io.kubernetes.pod.uid", format!("uid-of-{name}")),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

fn image_spec(image: &str) -> ImageSpec {
    ImageSpec {
        image: image.to_owned(),
        ..ImageSpec::default()
    }
}
