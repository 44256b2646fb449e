//! `time.TimeService`: the clock of the machine, compared with NTP servers.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use mainstay_api::envelope;
use mainstay_api::time::time_service_server::TimeService;
use mainstay_api::time::{KernelClock as WireKernelClock, Time, TimeRequest, TimeResponse};
use mainstay_node::clock::KernelClock;
use mainstay_node::ntp::{Measurement, QueryError};
use prost_types::{Duration, Timestamp as WireTimestamp};
use tonic::{Code, Request, Response, Status};

use crate::engines::time::{LastMeasurement, NtpServer};
use crate::node::Node;
use crate::rpc::{reading, status};
use mainstay_error_chain::chain;

const NANOS_PER_SECOND: i128 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct TimeCalls {
    node: Arc<Node>,
}

impl TimeCalls {
    pub(super) fn new(node: &Arc<Node>) -> Self {
        Self {
            node: Arc::clone(node),
        }
    }

    /// Returns the measurement of the configured server, queried if the last is too old.
    async fn measurement(&self, server: &NtpServer) -> Result<Measurement, Status> {
        let waiting_since = Instant::now();
        let mut last = self.node.engines.time.last.lock().await;
        let known = last.as_ref();
        if let Some(known) = known.and_then(|last| last.usable(server, waiting_since)) {
            return known.map_err(|error| failed(&error));
        }
        let measurement = measure(server.clone()).await?.map_err(Arc::new);
        *last = Some(LastMeasurement {
            server: server.clone(),
            measured: Instant::now(),
            measurement: measurement.clone(),
        });
        measurement.map_err(|error| failed(&error))
    }
}

#[tonic::async_trait]
impl TimeService for TimeCalls {
    async fn time(&self, _: Request<()>) -> Result<Response<TimeResponse>, Status> {
        let server = self.node.engines.time.server();
        let answer = match &server {
            Some(server) => compared(server, self.measurement(server).await?)?,
            None => by_kernel(kernel_clock()?),
        };
        Ok(Response::new(envelope(answer)))
    }

    async fn time_check(
        &self,
        request: Request<TimeRequest>,
    ) -> Result<Response<TimeResponse>, Status> {
        let server = request.into_inner().server;
        if server.is_empty() {
            return Err(Status::invalid_argument(
                "server is empty; name an NTP server, or call Time for the one of the \
                 configuration",
            ));
        }
        let server = NtpServer::try_from(server).map_err(status::invalid)?;
        let measurement = measure(server.clone()).await?;
        let measurement = measurement.map_err(|error| failed(&error))?;
        Ok(Response::new(envelope(compared(&server, measurement)?)))
    }
}

async fn measure(server: NtpServer) -> Result<Result<Measurement, QueryError>, Status> {
    reading("the time of an NTP server", move || Ok(server.query())).await
}

/// No code means that this node cannot be reached: it has answered.
fn failed(error: &QueryError) -> Status {
    let code = match error {
        QueryError::Unresolved { .. } | QueryError::NoAddress { .. } => Code::NotFound,
        QueryError::NotUnicast { .. } => Code::InvalidArgument,
        QueryError::NoAnswer { .. } => Code::DeadlineExceeded,
        QueryError::Io { .. } | QueryError::Unusable { .. } => Code::FailedPrecondition,
    };
    Status::new(code, chain(error))
}

fn kernel_clock() -> Result<KernelClock, Status> {
    KernelClock::read()
        .map_err(|error| Status::internal(format!("cannot read the kernel's clock: {error}")))
}

/// Without a server the reference is the clock that a time daemon has told the kernel about.
fn by_kernel(clock: KernelClock) -> Time {
    let now = Timestamp::now().as_nanosecond();
    let offset = i128::from(clock.offset_nanos);
    Time {
        localtime: Some(timestamp(now)),
        remotetime: clock.synchronized.then(|| timestamp(now + offset)),
        offset: clock.synchronized.then(|| duration(offset)),
        kernel: Some(kernel(clock)),
        ..Time::default()
    }
}

fn compared(server: &NtpServer, measured: Measurement) -> Result<Time, Status> {
    let now = Timestamp::now().as_nanosecond();
    let round_trip = i128::try_from(measured.round_trip.as_nanos()).unwrap_or(i128::MAX);
    Ok(Time {
        metadata: None,
        server: server.to_string(),
        localtime: Some(timestamp(now)),
        remotetime: Some(timestamp(now + measured.offset_nanos)),
        offset: Some(duration(measured.offset_nanos)),
        round_trip: Some(duration(round_trip)),
        stratum: measured.stratum.into(),
        kernel: Some(kernel(kernel_clock()?)),
    })
}

fn kernel(clock: KernelClock) -> WireKernelClock {
    let micros = |micros: i64| Some(duration(i128::from(micros) * 1000));
    WireKernelClock {
        synchronized: clock.synchronized,
        offset: Some(duration(clock.offset_nanos.into())),
        estimated_error: micros(clock.estimated_error_micros),
        max_error: micros(clock.max_error_micros),
        frequency_ppm: clock.frequency_ppm,
        leap_insert: clock.leap_insert,
        leap_delete: clock.leap_delete,
        tai_offset_seconds: clock.tai_offset_seconds,
    }
}

fn timestamp(nanos: i128) -> WireTimestamp {
    let (seconds, nanos) = (
        nanos.div_euclid(NANOS_PER_SECOND),
        nanos.rem_euclid(NANOS_PER_SECOND),
    );
    WireTimestamp {
        seconds: i64::try_from(seconds).unwrap_or(0),
        nanos: i32::try_from(nanos).unwrap_or(0),
    }
}

/// A duration of the wire has the same sign in both parts.
fn duration(nanos: i128) -> Duration {
    Duration {
        seconds: i64::try_from(nanos / NANOS_PER_SECOND).unwrap_or(0),
        nanos: i32::try_from(nanos % NANOS_PER_SECOND).unwrap_or(0),
    }
}
