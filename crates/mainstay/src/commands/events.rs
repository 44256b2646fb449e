//! `mainstay events`

use clap::Args;
use futures_util::StreamExt;
use mainstay_api::event;
use mainstay_api::machine::{
    Event, EventsRequest, PhaseEvent, SequenceEvent, ServiceStateEvent, TaskEvent,
};
use mainstay_client::format::{json_of_bytes, local_time, parse_duration, printable};
use mainstay_journal::EventId;
use prost_types::Any;
use serde_json::{Value, json};

use super::connect;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;

/// Show events, and follow them with -f
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay events --tail 10\n  \
    mainstay events --since 1h -o json\n  \
    mainstay events -f\n  \
    mainstay events -f --after 00000000000000051878a3b1c0de0000")]
pub struct Events {
    /// Follow new events
    #[arg(short, long)]
    follow: bool,

    /// Start with the last N events; -1 for all [default: 20, with -f: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = clap::value_parser!(i32).range(-1..), conflicts_with_all = ["since", "after"])]
    tail: Option<i32>,

    /// Start with the events of the last TIME: 10m, 2h, 1day
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "after")]
    since: Option<std::time::Duration>,

    /// Start after the event with this id, to resume a stream
    #[arg(long, value_name = "ID")]
    after: Option<String>,
}

impl Events {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let mut machine = client.machine();
        let request = client.request(self.request());
        let mut stream = client.within(machine.events(request)).await?.into_inner();
        while let Some(event) = stream.next().await {
            let event = event?;
            client.report(event.metadata.as_ref());
            let node = client.node_name(event.metadata.as_ref());
            // A stream starts with an empty event that only confirms the subscription.
            let Some(event) = EventLine::decode(&event) else {
                continue;
            };
            match global.output {
                Format::Table if client.has_many_nodes() => {
                    output::print(&format!("{node}: {}\n", event.line()))?;
                }
                Format::Table => output::print(&format!("{}\n", event.line()))?,
                format => output::print_item(format, &event.value(&node))?,
            }
        }
        client.finish()
    }

    fn request(&self) -> EventsRequest {
        let default_tail = if self.follow { 0 } else { 20 };
        let tail = match (&self.since, &self.after) {
            (None, None) => self.tail.unwrap_or(default_tail),
            _ => 0,
        };
        EventsRequest {
            tail_events: tail,
            tail_id: self.after.clone().unwrap_or_default(),
            // Rounded up: rather one event more than one less.
            tail_seconds: self.since.map_or(0, |since| {
                i32::try_from(since.as_millis().div_ceil(1000)).unwrap_or(i32::MAX)
            }),
            until_now: !self.follow,
            ..EventsRequest::default()
        }
    }
}

/// An event, decoded for display.
pub(super) struct EventLine {
    id: String,
    actor_id: String,
    time: Option<jiff::Timestamp>,
    kind: String,
    data: Value,
    summary: String,
}

impl EventLine {
    pub(super) fn decode(wire: &Event) -> Option<Self> {
        let packed = wire.data.as_ref()?;
        let kind = event::kind(packed).unwrap_or(&packed.type_url).to_owned();
        let data = json_of_bytes(&kind, &packed.value);
        let summary = match event::unpack::<ServiceStateEvent>(packed) {
            Ok(state) => {
                format!(
                    "{} {} {}",
                    state.service,
                    state.action().as_str_name(),
                    state.message
                )
            }
            Err(_) => lifecycle_summary(packed).unwrap_or_else(|| data.to_string()),
        };
        // Ids of Mainstay contain the time; those of other implementations may not.
        let time =
            wire.id.parse::<EventId>().ok().and_then(|id| {
                jiff::Timestamp::from_nanosecond(i128::from(id.time.as_nanos())).ok()
            });
        Some(Self {
            id: wire.id.clone(),
            actor_id: wire.actor_id.clone(),
            time,
            kind,
            data,
            summary,
        })
    }

    fn line(&self) -> String {
        let time = self.time.map_or_else(|| "-".to_owned(), local_time);
        let kind = self.kind.rsplit('.').next().unwrap_or(&self.kind);
        printable(&format!("{time}  {kind:<18} {}", self.summary))
    }

    pub(super) fn value(&self, node: &str) -> Value {
        let mut value = json!({
            "node": node,
            "id": self.id,
            "time": self.time.map(|time| time.to_string()),
            "type": self.kind,
            "data": self.data,
        });
        if !self.actor_id.is_empty() {
            value["actor_id"] = Value::from(self.actor_id.as_str());
        }
        value
    }
}

/// An event of a sequence in words.
fn lifecycle_summary(packed: &Any) -> Option<String> {
    if let Ok(phase) = event::unpack::<PhaseEvent>(packed) {
        return Some(format!("{} {}", phase.phase, phase.action().as_str_name()));
    }
    if let Ok(task) = event::unpack::<TaskEvent>(packed) {
        return Some(format!("{} {}", task.task, task.action().as_str_name()));
    }
    let sequence: SequenceEvent = event::unpack(packed).ok()?;
    let action = sequence.action().as_str_name();
    let reason = sequence.error.map(|error| format!(" {}", error.message));
    Some(format!(
        "{} {action}{}",
        sequence.sequence,
        reason.unwrap_or_default()
    ))
}
