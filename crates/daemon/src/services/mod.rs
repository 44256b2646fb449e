//! One thin file per gRPC service: protobuf in, engine, protobuf out.
//!
//! Every rpc of the contract is registered under its own path. One that this version does not
//! serve answers UNIMPLEMENTED and says so; it never answers as if it had worked.

mod aurae_cells;
mod aurae_observe;
mod auth;
mod cell_status;
mod cells;
mod containers;
mod copy;
mod discovery;
mod disk_usage;
mod dmesg;
mod events;
mod list;
mod logs;
mod machine;
mod memory;
mod mounts;
mod netstat;
mod observe;
mod os;
mod processes;
mod producer;
mod public_api;
mod read;
mod readings;
mod runtime;
mod stats;
mod workload_status;

use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use mainstay_api as api;
use tonic::service::{Routes, RoutesBuilder};
use tonic::{Request, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_server::Health as _;
use tonic_health::server::{HealthReporter, HealthService};

use crate::node::Node;

/// The largest message either way.
pub const MOST_MESSAGE_BYTES: usize = 32 << 20;

/// A stream of answers.
pub(crate) type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

pub(crate) fn not_served(rpc: &str) -> Status {
    Status::unimplemented(format!(
        "{rpc} is not served by mainstay {}; a later version will",
        env!("CARGO_PKG_VERSION")
    ))
}

/// Runs what blocks on the kernel away from the async workers.
pub(crate) async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Status::internal(format!("cannot read {what}: {error}"))),
        Err(_) => Err(Status::internal(format!(
            "reading {what} failed; the node's log says why"
        ))),
    }
}

/// The health of the node as gRPC clients ask for it: of the whole, and of each service.
#[derive(Debug, Clone)]
pub struct Health(HealthReporter);

impl Health {
    pub async fn set_serving(&self, serving: bool) {
        let status = if serving {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        for service in SERVICES {
            self.0.set_service_status(service, status).await;
        }
    }

    /// What the health service says of the node as a whole.
    async fn is_serving(&self) -> bool {
        use tonic_health::pb::health_check_response::ServingStatus;
        let service = HealthService::from_health_reporter(self.0.clone());
        let answer = service.check(Request::new(HealthCheckRequest::default()));
        answer
            .await
            .is_ok_and(|answer| answer.into_inner().status() == ServingStatus::Serving)
    }
}

/// Every service of the contract, and the empty name for the node as a whole.
const SERVICES: &[&str] = &[
    "",
    "aurae.cells.v0.CellService",
    "aurae.discovery.v0.DiscoveryService",
    "aurae.observe.v0.ObserveService",
    "machine.MachineService",
    "observe.Observe",
    "os.OSService",
    "runtime.CellService",
    "runtime.Instances",
    "runtime.Pods",
    "runtime.Spawn",
    "services.auth.AuthService",
    "stats.StatsService",
    "v1alpha.PublicAPI",
];

/// All services of the node.
pub fn routes(node: &Arc<Node>) -> Result<(Routes, Health), tonic_reflection::server::Error> {
    let mut routes = RoutesBuilder::default();
    let (reporter, health_service) = tonic_health::server::health_reporter();
    let health = Health(reporter);
    macro_rules! add {
        ($($server:path => $service:expr),+ $(,)?) => {$({
            use $server as Server;
            routes.add_service(
                Server::new($service)
                    .max_decoding_message_size(MOST_MESSAGE_BYTES)
                    .max_encoding_message_size(MOST_MESSAGE_BYTES),
            );
        })+};
    }
    add! {
        api::aurae::cells::v0::cell_service_server::CellServiceServer => cells::Cells::new(node),
        api::aurae::discovery::v0::discovery_service_server::DiscoveryServiceServer =>
            discovery::Discovery::new(node, &health),
        api::aurae::observe::v0::observe_service_server::ObserveServiceServer =>
            observe::Observe::new(node),
        api::machine::machine_service_server::MachineServiceServer => machine::Machine::new(node),
        api::observe::observe_server::ObserveServer => observe::Observe::new(node),
        api::os::os_service_server::OsServiceServer => os::Os::new(node),
        api::runtime::cell_service_server::CellServiceServer => cells::Cells::new(node),
        api::runtime::instances_server::InstancesServer => runtime::Empty,
        api::runtime::pods_server::PodsServer => runtime::Empty,
        api::runtime::spawn_server::SpawnServer => runtime::Empty,
        api::services::auth::auth_service_server::AuthServiceServer => auth::Auth,
        api::stats::stats_service_server::StatsServiceServer => stats::Stats,
        api::v1alpha::public_api_server::PublicApiServer => public_api::PublicApi::new(node),
    }
    routes.add_service(health_service);
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(api::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    routes.add_service(reflection().build_v1()?);
    routes.add_service(reflection().build_v1alpha()?);
    Ok((routes.routes().prepare(), health))
}
