//! A node and its services, of which nothing is left after the test.

use std::path::Path;

use mainstay_api::common::Data;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{
    EventsRequest, LogsRequest, ServiceInfo, ServiceRestartRequest, ServiceStartRequest,
    ServiceStopRequest,
};
use mainstay_testkit::{Sweeper, TestNode, TestNodeBuilder, soon};
use tonic::transport::Channel;
use tonic::{Status, Streaming};

pub(super) struct ServiceNode {
    pub(super) node: TestNode,
    cgroup: String,
    // Declared last: services outlive their node.
    _sweeper: Sweeper,
}

impl ServiceNode {
    /// Starts a node with these sections of the configuration file.
    pub(super) fn start(name: &str, services: &str) -> Self {
        Self::start_with(name, |_| services.to_owned())
    }

    /// Starts a node whose services use files of the test's directory.
    pub(super) fn start_with(name: &str, services: impl FnOnce(&Path) -> String) -> Self {
        Self::start_as(name, |builder| {
            let services = services(builder.scratch());
            (builder, services)
        })
    }

    pub(super) fn start_as(
        name: &str,
        prepare: impl FnOnce(TestNodeBuilder) -> (TestNodeBuilder, String),
    ) -> Self {
        let sweeper = Sweeper::start(&format!("e2e-{name}"));
        let cgroup = sweeper.cgroup().to_owned();
        let (builder, services) = prepare(TestNode::builder());
        Self {
            node: builder.config(&config(&cgroup, &services)).start(),
            cgroup,
            _sweeper: sweeper,
        }
    }

    pub(super) fn with_node(self, start: impl FnOnce(TestNode) -> TestNode) -> Self {
        Self {
            node: start(self.node),
            ..self
        }
    }

    /// Replaces the services of the configuration file.
    pub(super) fn reload(&self, services: &str) {
        self.node.reload(&config(&self.cgroup, services));
    }

    pub(super) async fn machine(&self) -> MachineServiceClient<Channel> {
        MachineServiceClient::new(self.node.connect_locally().await)
    }

    /// All services but the daemon.
    pub(super) async fn list(&self) -> Vec<ServiceInfo> {
        let listed = self.machine().await.service_list(()).await.unwrap();
        let mut messages = listed.into_inner().messages;
        assert_eq!(messages.len(), 1);
        let mut services = messages.remove(0).services;
        services.retain(|service| service.id != "mainstay");
        services
    }

    pub(super) async fn service(&self, id: &str) -> ServiceInfo {
        let services = self.list().await.into_iter();
        let mut found = services.filter(|service| service.id == id);
        found.next().unwrap_or_else(|| panic!("no service {id}"))
    }

    /// Waits until a service is as `wanted` says.
    pub(super) async fn until(
        &self,
        id: &str,
        wanted: impl Fn(&ServiceInfo) -> bool,
    ) -> ServiceInfo {
        let found = self.until_all(|services| {
            let service = services.iter().find(|service| service.id == id)?;
            wanted(service).then(|| service.clone())
        });
        found.await
    }

    /// Waits until the list of services is as `wanted` says.
    pub(super) async fn until_all<T>(&self, wanted: impl Fn(&[ServiceInfo]) -> Option<T>) -> T {
        // Before the list, so that no change in between is missed.
        let mut events = self.events(EventsRequest::default()).await;
        let mut seen = Vec::new();
        let waited = async {
            loop {
                seen = self.list().await;
                if let Some(found) = wanted(&seen) {
                    return found;
                }
                events.message().await.unwrap().unwrap();
            }
        };
        soon("the services", waited).await
    }

    pub(super) async fn until_state(&self, id: &str, state: &str) -> ServiceInfo {
        self.until(id, |service| service.state == state).await
    }

    pub(super) async fn events(
        &self,
        request: EventsRequest,
    ) -> Streaming<mainstay_api::machine::Event> {
        self.machine()
            .await
            .events(request)
            .await
            .unwrap()
            .into_inner()
    }

    pub(super) async fn start_service(&self, id: &str) -> Result<String, Status> {
        let request = ServiceStartRequest { id: id.to_owned() };
        let reply = self.machine().await.service_start(request).await?;
        Ok(reply.into_inner().messages.remove(0).resp)
    }

    pub(super) async fn stop_service(&self, id: &str) -> Result<String, Status> {
        let request = ServiceStopRequest { id: id.to_owned() };
        let reply = soon("the stop", self.machine().await.service_stop(request)).await?;
        Ok(reply.into_inner().messages.remove(0).resp)
    }

    pub(super) async fn restart_service(&self, id: &str) -> Result<String, Status> {
        let request = ServiceRestartRequest { id: id.to_owned() };
        let reply = soon("the restart", self.machine().await.service_restart(request)).await?;
        Ok(reply.into_inner().messages.remove(0).resp)
    }

    /// The PID of a running service.
    pub(super) async fn pid(&self, id: &str) -> u32 {
        let request = mainstay_api::os::ContainersRequest {
            namespace: "system".to_owned(),
            driver: 0,
        };
        let listed = self.machine().await.containers(request).await.unwrap();
        let containers = listed.into_inner().messages.remove(0).containers;
        let found = containers.iter().find(|container| container.id == id);
        found.unwrap_or_else(|| panic!("no workload {id}")).pid
    }

    /// Follows the log of a service from its beginning until it contains this line.
    pub(super) async fn until_line(&self, id: &str, line: &str) -> String {
        let request = LogsRequest {
            namespace: "system".to_owned(),
            id: id.to_owned(),
            follow: true,
            tail_lines: -1,
            ..LogsRequest::default()
        };
        let mut text = String::new();
        let mut stream = self
            .machine()
            .await
            .logs(request)
            .await
            .unwrap()
            .into_inner();
        soon(line, async {
            while !text.lines().any(|seen| seen == line) {
                let data: Data = stream.message().await.unwrap().unwrap();
                text.push_str(std::str::from_utf8(&data.bytes).unwrap());
            }
        })
        .await;
        text
    }
}

fn config(cgroup: &str, services: &str) -> String {
    format!(
        "[containers]\ncontainerd = '/nonexistent/containerd.sock'\n\
         [cells]\ncgroup = \"{cgroup}/cells\"\n{services}"
    )
}

/// The messages of a service's events, oldest first.
pub(super) fn messages(service: &ServiceInfo) -> Vec<&str> {
    let events = &service.events.as_ref().unwrap().events;
    events.iter().map(|event| event.msg.as_str()).collect()
}

/// The message of its last event.
pub(super) fn message(service: &ServiceInfo) -> &str {
    messages(service).last().copied().unwrap_or_default()
}

pub(super) fn is_healthy(service: &ServiceInfo) -> bool {
    service.health.as_ref().unwrap().healthy
}

/// The PIDs of all processes with this argument.
pub(super) fn processes_with(argument: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_it = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|word| word == argument.as_bytes())
    };
    pids.filter(has_it).collect()
}
