//! The events of one sequence, across the connections that it breaks.

use std::time::Duration;

use futures_util::StreamExt;
use mainstay_api::common::Code as ErrorCode;
use mainstay_api::event;
use mainstay_api::machine::{
    Event, EventsRequest, PhaseEvent, SequenceEvent, TaskEvent, phase_event, sequence_event,
    task_event,
};
use tokio::time::{Instant, timeout_at};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::{Client, Error, ErrorKind, Options, request_to_node};

/// The wait before the first attempt to connect again; it doubles up to the longest.
const FIRST_BACK_OFF: Duration = Duration::from_millis(50);
const MAX_BACK_OFF: Duration = Duration::from_secs(2);

/// Events from before the call that the node's clock may make of it.
const CLOCK_MARGIN: Duration = Duration::from_secs(60);

/// A step of a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SequenceStep {
    PhaseStarted(String),
    PhaseStopped(String),
    TaskStarted(String),
    TaskStopped(String),
    /// The connection is lost, as it is when the node reboots; the next one resumes.
    ConnectionLost(String),
    Reconnected,
}

/// The end of a sequence, as far as it can be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SequenceEnd {
    Done,
    Failed {
        /// Another sequence took its place.
        preempted: bool,
        reason: String,
    },
    /// The node serves with another CA: its state was wiped, and with it what identified this
    /// client.
    IdentityReplaced,
}

/// A sequence that is waited for.
#[derive(Debug, Clone)]
pub struct Awaited<'a> {
    pub options: &'a Options,
    /// The node behind the endpoint; `None` for the endpoint itself.
    pub node: Option<&'a str>,
    pub actor_id: &'a str,
    /// When the call was made that started it.
    pub asked: Instant,
    pub deadline: Instant,
    /// A new CA is an end, not an error.
    pub replaces_identity: bool,
}

/// Follows the events of a sequence to its end. A lost connection is opened again and the events
/// resumed after the last one seen.
pub async fn follow_sequence(
    awaited: &Awaited<'_>,
    mut on_step: impl FnMut(SequenceStep),
) -> Result<SequenceEnd, Error> {
    let mut last_id = String::new();
    let mut retry = Retry::new(awaited);
    loop {
        let streamed = stream_once(awaited, &mut last_id, &mut retry, &mut on_step).await;
        let error = match streamed {
            Ok(end) => return Ok(end),
            Err(error) => error,
        };
        if awaited.replaces_identity && matches!(error, Error::Tls { .. } | Error::TlsAlert(_)) {
            return Ok(SequenceEnd::IdentityReplaced);
        }
        if is_unknown_id(&error) && !last_id.is_empty() {
            // The journal was wiped: the events of the sequence since are in the new one.
            last_id.clear();
            continue;
        }
        retry.after(error, &mut on_step).await?;
    }
}

/// Waits until the node says that it serves.
pub async fn await_serving(
    awaited: &Awaited<'_>,
    mut on_step: impl FnMut(SequenceStep),
) -> Result<(), Error> {
    let mut retry = Retry::new(awaited);
    loop {
        let error = match serves(awaited).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        retry.after(error, &mut on_step).await?;
    }
}

async fn serves(awaited: &Awaited<'_>) -> Result<(), Error> {
    let client = connect(awaited).await?;
    let mut health = HealthClient::new(client.channel());
    let request = request_to_node(awaited.node, HealthCheckRequest::default());
    let answer = client.within(health.check(request)).await?.into_inner();
    match answer.status() {
        ServingStatus::Serving => Ok(()),
        other => Err(Error::Status {
            code: Code::Unavailable,
            message: format!("the node answers and is {}", other.as_str_name()),
        }),
    }
}

async fn connect(awaited: &Awaited<'_>) -> Result<Client, Error> {
    let remaining = awaited.deadline.saturating_duration_since(Instant::now());
    let options = Options {
        timeout: awaited.options.timeout.min(remaining),
        nodes: awaited.node.map(str::to_owned).into_iter().collect(),
        ..awaited.options.clone()
    };
    Client::connect(&options, |_| {}).await
}

async fn stream_once(
    awaited: &Awaited<'_>,
    last_id: &mut String,
    retry: &mut Retry<'_>,
    on_step: &mut impl FnMut(SequenceStep),
) -> Result<SequenceEnd, Error> {
    let client = connect(awaited).await?;
    let age = awaited.asked.elapsed() + CLOCK_MARGIN;
    let request = EventsRequest {
        tail_id: last_id.clone(),
        tail_seconds: match last_id.is_empty() {
            true => i32::try_from(age.as_secs()).unwrap_or(i32::MAX),
            false => 0,
        },
        with_actor_id: awaited.actor_id.to_owned(),
        ..EventsRequest::default()
    };
    let mut machine = client.machine();
    let request = request_to_node(awaited.node, request);
    let mut events = client.within(machine.events(request)).await?.into_inner();
    retry.connected(on_step);
    loop {
        let next = timeout_at(awaited.deadline, events.next()).await;
        let Ok(next) = next else {
            return Err(retry.timed_out());
        };
        let event = next.transpose()?.ok_or_else(|| Error::Status {
            code: Code::Unavailable,
            message: "the stream of events ended".to_owned(),
        })?;
        if let Some(metadata) = event.metadata.as_ref().filter(|it| it.status.is_some()) {
            return Err(Error::of_node(metadata));
        }
        if !event.id.is_empty() {
            last_id.clone_from(&event.id);
        }
        match read(&event) {
            Some(Read::Step(step)) => on_step(step),
            Some(Read::End(end)) => return Ok(end),
            None => {}
        }
    }
}

enum Read {
    Step(SequenceStep),
    End(SequenceEnd),
}

fn read(event: &Event) -> Option<Read> {
    let packed = event.data.as_ref()?;
    if let Ok(phase) = event::unpack::<PhaseEvent>(packed) {
        return Some(Read::Step(match phase.action() {
            phase_event::Action::Start => SequenceStep::PhaseStarted(phase.phase),
            phase_event::Action::Stop => SequenceStep::PhaseStopped(phase.phase),
        }));
    }
    if let Ok(task) = event::unpack::<TaskEvent>(packed) {
        return Some(Read::Step(match task.action() {
            task_event::Action::Start => SequenceStep::TaskStarted(task.task),
            task_event::Action::Stop => SequenceStep::TaskStopped(task.task),
        }));
    }
    let sequence: SequenceEvent = event::unpack(packed).ok()?;
    match sequence.action() {
        sequence_event::Action::Start => None,
        sequence_event::Action::Stop => Some(Read::End(SequenceEnd::Done)),
        sequence_event::Action::Noop => {
            let error = sequence.error.unwrap_or_default();
            Some(Read::End(SequenceEnd::Failed {
                preempted: error.code() == ErrorCode::Canceled,
                reason: error.message,
            }))
        }
    }
}

/// Attempts to reach a node that is going down and comes back.
struct Retry<'a> {
    awaited: &'a Awaited<'a>,
    back_off: Duration,
    is_lost: bool,
}

impl<'a> Retry<'a> {
    fn new(awaited: &'a Awaited<'a>) -> Self {
        Self {
            awaited,
            back_off: FIRST_BACK_OFF,
            is_lost: false,
        }
    }

    fn connected(&mut self, on_step: &mut impl FnMut(SequenceStep)) {
        self.back_off = FIRST_BACK_OFF;
        if std::mem::take(&mut self.is_lost) {
            on_step(SequenceStep::Reconnected);
        }
    }

    fn timed_out(&self) -> Error {
        let Awaited {
            asked, deadline, ..
        } = self.awaited;
        Error::Timeout(deadline.saturating_duration_since(*asked))
    }

    /// Waits before the next attempt; fails if there is none.
    async fn after(
        &mut self,
        error: Error,
        on_step: &mut impl FnMut(SequenceStep),
    ) -> Result<(), Error> {
        if !is_transient(&error) {
            return Err(error);
        }
        if !std::mem::replace(&mut self.is_lost, true) {
            on_step(SequenceStep::ConnectionLost(crate::chain(&error)));
        }
        let next = Instant::now() + self.back_off;
        if next >= self.awaited.deadline {
            return Err(self.timed_out());
        }
        tokio::time::sleep_until(next).await;
        self.back_off = (self.back_off * 2).min(MAX_BACK_OFF);
        Ok(())
    }
}

/// Returns whether a node that reboots may cause the error.
fn is_transient(error: &Error) -> bool {
    if error.is_lost_connection() {
        return true;
    }
    match error {
        Error::Handshake { .. } | Error::Http2 { .. } => true,
        Error::Status { code, .. } => matches!(
            code,
            Code::Unavailable | Code::DeadlineExceeded | Code::Aborted | Code::Cancelled
        ),
        other => matches!(other.kind(), ErrorKind::Unreachable | ErrorKind::Timeout),
    }
}

fn is_unknown_id(error: &Error) -> bool {
    matches!(
        error,
        Error::Status {
            code: Code::NotFound,
            ..
        }
    )
}
