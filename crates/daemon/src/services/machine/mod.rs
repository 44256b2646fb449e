//! `machine.MachineService`: the node itself: version, logs, events, files, services, lifecycle.

mod configuration;
mod copy;
mod disk_usage;
mod events;
mod kernel_log;
mod lifecycle;
mod list;
mod logs;
mod mounts;
mod netstat;
mod packet_capture;
mod read;
mod readings;
mod services;
mod upgrade;

use std::sync::Arc;

use mainstay_api::common::Data;
use mainstay_api::envelope;
use mainstay_api::machine::machine_service_server::MachineService;
use mainstay_api::machine::{
    ApplyConfigurationRequest, ApplyConfigurationResponse, BootstrapRequest, BootstrapResponse,
    CopyRequest, CpuFreqStatsResponse, CpuInfoResponse, DiskStatsResponse, DiskUsageInfo,
    DiskUsageRequest, Event, EventsRequest, FeaturesInfo, FileInfo, HostnameResponse, ListRequest,
    LoadAvgResponse, LogsContainersResponse, LogsRequest, MountsResponse, NetstatRequest,
    NetstatResponse, NetworkDeviceStatsResponse, PacketCaptureRequest, PlatformInfo, ReadRequest,
    RebootRequest, RebootResponse, RecoverRequest, RecoverResponse, ResetRequest, ResetResponse,
    RollbackRequest, RollbackResponse, ServiceListResponse, ServiceRestart, ServiceRestartRequest,
    ServiceRestartResponse, ServiceStart, ServiceStartRequest, ServiceStartResponse, ServiceStop,
    ServiceStopRequest, ServiceStopResponse, ShutdownRequest, ShutdownResponse, SystemStatResponse,
    UpgradeRequest, UpgradeResponse, Version, VersionInfo, VersionResponse,
};
use mainstay_api::os::{
    ContainersRequest, ContainersResponse, DmesgRequest, MemoryResponse, ProcessesResponse,
    RestartRequest, RestartResponse, StatsRequest, StatsResponse,
};
use tonic::{Request, Response, Status};

use super::os::{containers, dmesg, memory, processes};
use crate::node::Node;
use crate::rpc::Answers;
pub(super) use logs::{items, process_items};

#[derive(Debug)]
pub(super) struct Machine {
    node: Arc<Node>,
    /// Constant while the daemon runs.
    version: VersionResponse,
}

impl Machine {
    pub(super) fn new(node: &Arc<Node>) -> Self {
        Self {
            node: Arc::clone(node),
            version: envelope(version(node)),
        }
    }
}

fn version(node: &Node) -> Version {
    let build = &node.build;
    let platform = &node.engines.lifecycle.platform;
    Version {
        metadata: None,
        version: Some(VersionInfo {
            tag: format!("v{}", build.version),
            sha: build.sha.clone(),
            built: build.built.clone(),
            go_version: build.rust.clone(),
            os: std::env::consts::OS.to_owned(),
            arch: build.arch.clone(),
        }),
        platform: Some(PlatformInfo {
            name: platform.name().to_string(),
            mode: platform.mode().to_owned(),
        }),
        features: Some(FeaturesInfo { rbac: true }),
    }
}

#[tonic::async_trait]
impl MachineService for Machine {
    type CopyStream = Answers<Data>;
    type DiskUsageStream = Answers<DiskUsageInfo>;
    type DmesgStream = Answers<Data>;
    type EventsStream = Answers<Event>;
    type KubeconfigStream = Answers<Data>;
    type ListStream = Answers<FileInfo>;
    type LogsStream = Answers<Data>;
    type PacketCaptureStream = Answers<Data>;
    type ReadStream = Answers<Data>;

    async fn version(&self, _: Request<()>) -> Result<Response<VersionResponse>, Status> {
        Ok(Response::new(self.version.clone()))
    }

    async fn events(
        &self,
        request: Request<EventsRequest>,
    ) -> Result<Response<Answers<Event>>, Status> {
        events::stream(&self.node.engines.journal.events, request.get_ref())
            .await
            .map(Response::new)
    }

    async fn logs(&self, request: Request<LogsRequest>) -> Result<Response<Answers<Data>>, Status> {
        logs::stream(&self.node, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn bootstrap(
        &self,
        _: Request<BootstrapRequest>,
    ) -> Result<Response<BootstrapResponse>, Status> {
        Err(lifecycle::no_cluster("Bootstrap"))
    }

    async fn copy(&self, request: Request<CopyRequest>) -> Result<Response<Answers<Data>>, Status> {
        copy::stream(&request.get_ref().root_path).map(Response::new)
    }

    async fn kubeconfig(&self, _: Request<()>) -> Result<Response<Answers<Data>>, Status> {
        Err(lifecycle::no_cluster("Kubeconfig"))
    }

    async fn list(
        &self,
        request: Request<ListRequest>,
    ) -> Result<Response<Answers<FileInfo>>, Status> {
        list::stream(request.get_ref()).map(Response::new)
    }

    async fn mounts(&self, _: Request<()>) -> Result<Response<MountsResponse>, Status> {
        let mounts = mounts::mounts(&self.node.space).await?;
        Ok(Response::new(envelope(mounts)))
    }

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<Answers<Data>>, Status> {
        read::stream(&request.get_ref().path).map(Response::new)
    }

    async fn reboot(
        &self,
        request: Request<RebootRequest>,
    ) -> Result<Response<RebootResponse>, Status> {
        lifecycle::reboot(&self.node, request.get_ref()).await
    }

    async fn rollback(
        &self,
        _: Request<RollbackRequest>,
    ) -> Result<Response<RollbackResponse>, Status> {
        upgrade::roll_back(&self.node).await
    }

    async fn reset(
        &self,
        request: Request<ResetRequest>,
    ) -> Result<Response<ResetResponse>, Status> {
        lifecycle::reset(&self.node, request.get_ref()).await
    }

    async fn recover(
        &self,
        _: Request<RecoverRequest>,
    ) -> Result<Response<RecoverResponse>, Status> {
        Err(lifecycle::no_cluster("Recover"))
    }

    async fn service_list(&self, _: Request<()>) -> Result<Response<ServiceListResponse>, Status> {
        Ok(Response::new(envelope(services::list(&self.node))))
    }

    async fn service_restart(
        &self,
        request: Request<ServiceRestartRequest>,
    ) -> Result<Response<ServiceRestartResponse>, Status> {
        let resp = services::restart(&self.node, &request.get_ref().id).await?;
        Ok(Response::new(envelope(ServiceRestart {
            metadata: None,
            resp,
        })))
    }

    async fn service_start(
        &self,
        request: Request<ServiceStartRequest>,
    ) -> Result<Response<ServiceStartResponse>, Status> {
        let resp = services::start(&self.node, &request.get_ref().id).await?;
        Ok(Response::new(envelope(ServiceStart {
            metadata: None,
            resp,
        })))
    }

    async fn service_stop(
        &self,
        request: Request<ServiceStopRequest>,
    ) -> Result<Response<ServiceStopResponse>, Status> {
        let resp = services::stop(&self.node, &request.get_ref().id).await?;
        Ok(Response::new(envelope(ServiceStop {
            metadata: None,
            resp,
        })))
    }

    async fn shutdown(
        &self,
        request: Request<ShutdownRequest>,
    ) -> Result<Response<ShutdownResponse>, Status> {
        lifecycle::shut_down(&self.node, request.get_ref()).await
    }

    async fn upgrade(
        &self,
        request: Request<UpgradeRequest>,
    ) -> Result<Response<UpgradeResponse>, Status> {
        upgrade::upgrade(&self.node, request.get_ref()).await
    }

    async fn containers(
        &self,
        request: Request<ContainersRequest>,
    ) -> Result<Response<ContainersResponse>, Status> {
        containers::list(&self.node, request.get_ref()).await
    }

    async fn dmesg(
        &self,
        request: Request<DmesgRequest>,
    ) -> Result<Response<Answers<Data>>, Status> {
        dmesg::stream(request.get_ref())
    }

    async fn memory(&self, _: Request<()>) -> Result<Response<MemoryResponse>, Status> {
        memory::memory().await
    }

    async fn processes(&self, _: Request<()>) -> Result<Response<ProcessesResponse>, Status> {
        processes::processes().await
    }

    async fn restart(
        &self,
        request: Request<RestartRequest>,
    ) -> Result<Response<RestartResponse>, Status> {
        containers::restart(&self.node, request.get_ref()).await
    }

    async fn stats(
        &self,
        request: Request<StatsRequest>,
    ) -> Result<Response<StatsResponse>, Status> {
        containers::stats(&self.node, request.get_ref()).await
    }

    async fn hostname(&self, _: Request<()>) -> Result<Response<HostnameResponse>, Status> {
        Ok(Response::new(envelope(readings::hostname())))
    }

    async fn load_avg(&self, _: Request<()>) -> Result<Response<LoadAvgResponse>, Status> {
        readings::load()
            .await
            .map(|answer| Response::new(envelope(answer)))
    }

    async fn system_stat(&self, _: Request<()>) -> Result<Response<SystemStatResponse>, Status> {
        readings::system()
            .await
            .map(|answer| Response::new(envelope(answer)))
    }

    async fn cpu_info(&self, _: Request<()>) -> Result<Response<CpuInfoResponse>, Status> {
        readings::cpu_info()
            .await
            .map(|answer| Response::new(envelope(answer)))
    }

    async fn cpu_freq_stats(
        &self,
        _: Request<()>,
    ) -> Result<Response<CpuFreqStatsResponse>, Status> {
        readings::cpu_frequencies()
            .await
            .map(|answer| Response::new(envelope(answer)))
    }

    async fn network_device_stats(
        &self,
        _: Request<()>,
    ) -> Result<Response<NetworkDeviceStatsResponse>, Status> {
        readings::network()
            .await
            .map(|answer| Response::new(envelope(answer)))
    }

    async fn disk_stats(&self, _: Request<()>) -> Result<Response<DiskStatsResponse>, Status> {
        readings::disks()
            .await
            .map(|answer| Response::new(envelope(answer)))
    }

    async fn logs_containers(
        &self,
        _: Request<()>,
    ) -> Result<Response<LogsContainersResponse>, Status> {
        logs::ids(&self.node).await.map(Response::new)
    }

    async fn disk_usage(
        &self,
        request: Request<DiskUsageRequest>,
    ) -> Result<Response<Answers<DiskUsageInfo>>, Status> {
        disk_usage::stream(request.get_ref()).map(Response::new)
    }

    async fn netstat(
        &self,
        request: Request<NetstatRequest>,
    ) -> Result<Response<NetstatResponse>, Status> {
        netstat::netstat(request.into_inner())
            .await
            .map(|answer| Response::new(envelope(answer)))
    }

    async fn packet_capture(
        &self,
        request: Request<PacketCaptureRequest>,
    ) -> Result<Response<Answers<Data>>, Status> {
        packet_capture::stream(request.into_inner()).map(Response::new)
    }

    async fn apply_configuration(
        &self,
        request: Request<ApplyConfigurationRequest>,
    ) -> Result<Response<ApplyConfigurationResponse>, Status> {
        configuration::apply(&self.node, request.into_inner())
            .await
            .map(|answer| Response::new(envelope(answer)))
    }
}
