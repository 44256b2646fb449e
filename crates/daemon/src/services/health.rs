//! The health of the node as gRPC clients ask for it: of the whole, and of each service.

use std::sync::Arc;

use tonic::Request;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_server::Health as _;
use tonic_health::server::{HealthReporter, HealthService};

/// The name under which the health of the whole node is asked for.
const WHOLE_NODE: &str = "";

/// Reports the health of the services that are registered.
#[derive(Debug, Clone)]
pub struct Health {
    reporter: HealthReporter,
    services: Arc<[&'static str]>,
}

impl Health {
    pub(super) fn new(reporter: HealthReporter, services: &[&'static str]) -> Self {
        Self {
            reporter,
            services: services.into(),
        }
    }

    pub async fn set_serving(&self, serving: bool) {
        let status = if serving {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        for service in std::iter::once(WHOLE_NODE).chain(self.services.iter().copied()) {
            self.reporter.set_service_status(service, status).await;
        }
    }
}

/// Returns whether the health service reports the whole node as serving.
pub(super) async fn is_serving(reporter: &HealthReporter) -> bool {
    use tonic_health::pb::health_check_response::ServingStatus;
    let service = HealthService::from_health_reporter(reporter.clone());
    let answer = service.check(Request::new(HealthCheckRequest::default()));
    answer
        .await
        .is_ok_and(|answer| answer.into_inner().status() == ServingStatus::Serving)
}
