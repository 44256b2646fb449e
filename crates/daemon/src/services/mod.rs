//! The gRPC services, a folder per package: protobuf in, engine, protobuf out.
//!
//! Every rpc of the contract is registered under its own path. One that this version does not
//! serve answers UNIMPLEMENTED and says so; it never answers as if it had worked.

mod aurae;
mod auth;
mod health;
mod machine;
mod mainstay;
mod network;
mod observe;
mod os;
mod runtime;
mod schedule;
mod stats;
mod storage;
mod time;
mod v1alpha;

use std::sync::Arc;

use mainstay_api as api;
use tonic::server::NamedService;
use tonic::service::{Routes, RoutesBuilder};

use crate::node::Node;
use crate::rpc::MAX_MESSAGE_BYTES;
pub use health::Health;

/// Requests of reflection are names. Each answer repeats its request and waits for its reader, in
/// any number of calls.
const MAX_REFLECTION_BYTES: usize = 16 << 10;

/// Registers every service of the node.
pub fn routes(node: &Arc<Node>) -> Result<(Routes, Health), tonic_reflection::server::Error> {
    let mut routes = RoutesBuilder::default();
    let mut registered = Vec::new();
    let (reporter, health_service) = tonic_health::server::health_reporter();
    macro_rules! add {
        ($($server:path => $service:expr),+ $(,)?) => {$({
            use $server as Server;
            let server = Server::new($service)
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES);
            registered.push(name_of(&server));
            routes.add_service(server);
        })+};
    }
    add! {
        api::aurae::cells::v0::cell_service_server::CellServiceServer =>
            runtime::CellCalls::new(node),
        api::aurae::discovery::v0::discovery_service_server::DiscoveryServiceServer =>
            aurae::Discovery::new(node, &reporter),
        api::aurae::observe::v0::observe_service_server::ObserveServiceServer =>
            observe::Observe::new(node),
        api::machine::machine_service_server::MachineServiceServer => machine::Machine::new(node),
        api::mainstay::node_service_server::NodeServiceServer => mainstay::NodeCalls::new(node),
        api::network::network_service_server::NetworkServiceServer => network::Network,
        api::observe::observe_server::ObserveServer => observe::Observe::new(node),
        api::os::os_service_server::OsServiceServer => os::Os::new(node),
        api::runtime::cell_service_server::CellServiceServer => runtime::CellCalls::new(node),
        api::runtime::instances_server::InstancesServer => runtime::Empty,
        api::runtime::pods_server::PodsServer => runtime::Empty,
        api::runtime::spawn_server::SpawnServer => runtime::Empty,
        api::schedule::schedule_service_server::ScheduleServiceServer =>
            schedule::ScheduleCalls::new(node),
        api::services::auth::auth_service_server::AuthServiceServer => auth::Auth,
        api::stats::stats_service_server::StatsServiceServer => stats::Stats,
        api::storage::storage_service_server::StorageServiceServer => storage::Storage,
        api::time::time_service_server::TimeServiceServer => time::TimeCalls::new(node),
        api::v1alpha::public_api_server::PublicApiServer => v1alpha::PublicApi::new(node),
    }
    routes.add_service(health_service);
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(api::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let v1 = reflection().build_v1()?;
    let v1alpha = reflection().build_v1alpha()?;
    routes.add_service(v1.max_decoding_message_size(MAX_REFLECTION_BYTES));
    routes.add_service(v1alpha.max_decoding_message_size(MAX_REFLECTION_BYTES));
    let health = Health::new(reporter, &registered);
    Ok((routes.routes().prepare(), health))
}

fn name_of<S: NamedService>(_: &S) -> &'static str {
    S::NAME
}
