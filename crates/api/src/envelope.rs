//! The envelope around a node's own answer.
//!
//! A unary reply of the machine and OS services is a list with one message per node asked. A node
//! answering for itself puts exactly one message in it and leaves `metadata` unset: only the node
//! that forwards a call knows under which name the client asked, and it alone fills that in.

use crate::common::Metadata;
use crate::{machine, mainstay, network, os, schedule, storage, time};

/// A message that one node answers with, and the reply that carries it.
pub trait Envelope: Sized {
    type Reply;

    /// Puts this answer, and nothing else, into its reply.
    fn enclose(self) -> Self::Reply;
}

/// A message that says which node it is from, once it has been forwarded.
pub trait FromNode {
    fn metadata(&self) -> Option<&Metadata>;
}

/// A reply with the messages of all nodes asked.
pub trait Reply {
    type Message: FromNode;

    fn into_messages(self) -> Vec<Self::Message>;
}

/// Wraps the answer of this node: `Ok(Response::new(envelope(version)))`.
pub fn envelope<M: Envelope>(message: M) -> M::Reply {
    message.enclose()
}

macro_rules! enclosed {
    ($($message:path => $reply:path),+ $(,)?) => {$(
        impl Envelope for $message {
            type Reply = $reply;

            fn enclose(mut self) -> $reply {
                self.metadata = None;
                $reply { messages: vec![self] }
            }
        }

        impl FromNode for $message {
            fn metadata(&self) -> Option<&Metadata> {
                self.metadata.as_ref()
            }
        }

        impl Reply for $reply {
            type Message = $message;

            fn into_messages(self) -> Vec<$message> {
                self.messages
            }
        }
    )+};
}

enclosed! {
    machine::ApplyConfiguration => machine::ApplyConfigurationResponse,
    machine::Bootstrap => machine::BootstrapResponse,
    machine::CpUsFreqStats => machine::CpuFreqStatsResponse,
    machine::CpUsInfo => machine::CpuInfoResponse,
    machine::DiskStats => machine::DiskStatsResponse,
    machine::Hostname => machine::HostnameResponse,
    machine::LoadAvg => machine::LoadAvgResponse,
    machine::LogsContainer => machine::LogsContainersResponse,
    machine::Mounts => machine::MountsResponse,
    machine::Netstat => machine::NetstatResponse,
    machine::NetworkDeviceStats => machine::NetworkDeviceStatsResponse,
    machine::Reboot => machine::RebootResponse,
    machine::Recover => machine::RecoverResponse,
    machine::Reset => machine::ResetResponse,
    machine::Rollback => machine::RollbackResponse,
    machine::ServiceList => machine::ServiceListResponse,
    machine::ServiceRestart => machine::ServiceRestartResponse,
    machine::ServiceStart => machine::ServiceStartResponse,
    machine::ServiceStop => machine::ServiceStopResponse,
    machine::SystemStat => machine::SystemStatResponse,
    machine::Shutdown => machine::ShutdownResponse,
    machine::Upgrade => machine::UpgradeResponse,
    machine::Version => machine::VersionResponse,
    mainstay::Cgroups => mainstay::CgroupsResponse,
    mainstay::Slots => mainstay::SlotsResponse,
    mainstay::UploadedImage => mainstay::UploadImageResponse,
    mainstay::Configuration => mainstay::ConfigurationResponse,
    network::Interfaces => network::InterfacesResponse,
    network::Routes => network::RoutesResponse,
    os::Container => os::ContainersResponse,
    os::Memory => os::MemoryResponse,
    os::Process => os::ProcessesResponse,
    os::Restart => os::RestartResponse,
    os::Stats => os::StatsResponse,
    schedule::Begun => schedule::RunResponse,
    schedule::Destroyed => schedule::DestroyResponse,
    schedule::Disabled => schedule::DisableResponse,
    schedule::DisabledSchedules => schedule::ShowDisabledResponse,
    schedule::Enabled => schedule::EnableResponse,
    schedule::EnabledSchedules => schedule::ShowEnabledResponse,
    storage::Disks => storage::DisksResponse,
    time::Time => time::TimeResponse,
}
