//! `mainstay schedule list` and `show`

use mainstay_api::schedule::{ScheduleStatus, Timer};
use mainstay_client::Answer;
use mainstay_client::format::{Table, to_json};
use prost_types::{Duration, Timestamp};
use serde_json::Value;

use super::service;
use crate::cli::{Format, Global};
use crate::commands::connect;
use crate::connection::Connection;
use crate::failure::{Exit, Failure, Outcome};
use crate::output;

type Listed = Vec<(String, ScheduleStatus)>;

pub(super) async fn list(global: &Global) -> Outcome {
    let client = connect(global).await?;
    let schedules = read(&client).await?;
    if global.output != Format::Table {
        print_documents(global.output, &schedules)?;
        return client.finish();
    }
    let mut table = Table::new(&["NODE", "NAME", "STATE", "WHEN", "NEXT", "LAST", "RESULT"]);
    for (node, seen) in schedules {
        let definition = seen.schedule.clone().unwrap_or_default();
        let last = seen.runs.first();
        table.row(vec![
            node,
            definition.name.clone(),
            state(&seen).to_owned(),
            when(definition.timer.as_ref()),
            seen.next.map(time).unwrap_or_default(),
            last.and_then(|run| run.started)
                .map(time)
                .unwrap_or_default(),
            last.map(|run| run.result.clone()).unwrap_or_default(),
        ]);
    }
    client.print_table(table)?;
    client.finish()
}

pub(super) async fn show(global: &Global, name: &str) -> Outcome {
    let client = connect(global).await?;
    let mut schedules = read(&client).await?;
    schedules.retain(|(_, seen)| seen.schedule.as_ref().is_some_and(|it| it.name == name));
    if schedules.is_empty() {
        client.finish()?;
        let text = format!("schedule {name:?} not found; mainstay schedule list shows all");
        return Err(Failure::new(Exit::NotFound, text));
    }
    if global.output != Format::Table {
        print_documents(global.output, &schedules)?;
        return client.finish();
    }
    for (node, seen) in &schedules {
        let prefix = client.message_prefix(node);
        output::print(&format!("{prefix}{}", described(seen)))?;
    }
    client.finish()
}

/// Reads the schedules of every node, enabled ones first.
async fn read(client: &Connection) -> Outcome<Listed> {
    let enabled = client.call_all((), |_, request| {
        let mut schedules = service(client);
        async move { schedules.show_enabled(request).await }
    });
    let mut listed: Listed = Vec::new();
    for Answer { node, message } in enabled.await? {
        listed.extend(message.schedules.into_iter().map(|it| (node.clone(), it)));
    }
    let disabled = client.call_all((), |_, request| {
        let mut schedules = service(client);
        async move { schedules.show_disabled(request).await }
    });
    for Answer { node, message } in disabled.await? {
        listed.extend(message.schedules.into_iter().map(|it| (node.clone(), it)));
    }
    Ok(listed)
}

fn print_documents(format: Format, schedules: &Listed) -> Outcome {
    let entries = schedules.iter().map(|(node, seen)| {
        let mut entry = to_json("schedule.ScheduleStatus", seen);
        entry["node"] = Value::from(node.as_str());
        entry
    });
    output::print_document(format, &entries.collect())
}

fn state(seen: &ScheduleStatus) -> &'static str {
    match (seen.running, seen.enabled) {
        (true, true) => "running",
        (true, false) => "running, disabled",
        (false, true) => "enabled",
        (false, false) => "disabled",
    }
}

fn when(timer: Option<&Timer>) -> String {
    match timer {
        None => "always".to_owned(),
        Some(timer) => match timer.interval {
            Some(every) => format!("every {}", duration(every)),
            None => match timer.time_zone.as_str() {
                "" => timer.calendar.clone(),
                zone => format!("{} ({zone})", timer.calendar),
            },
        },
    }
}

fn described(seen: &ScheduleStatus) -> String {
    let definition = seen.schedule.clone().unwrap_or_default();
    let mut text = format!("{}\n", definition.name);
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            text.push_str(&format!("  {name:<9} {value}\n"));
        }
    };
    line("state:", state(seen).to_owned());
    line("when:", when(definition.timer.as_ref()));
    line("next:", seen.next.map(time).unwrap_or_default());
    line("service:", definition.service);
    if let Some(executable) = definition.executable {
        line("cell:", executable.cell_name);
        line("command:", executable.command);
    }
    if let Some(timer) = definition.timer {
        line("jitter:", timer.jitter.map(duration).unwrap_or_default());
        line("timeout:", timer.timeout.map(duration).unwrap_or_default());
        line(
            "catch up:",
            if timer.catch_up { "yes" } else { "no" }.to_owned(),
        );
    }
    if seen.skipped > 0 {
        line("skipped:", seen.skipped.to_string());
    }
    if seen.missed > 0 {
        line("missed:", seen.missed.to_string());
    }
    for run in &seen.runs {
        let started = run.started.map(time).unwrap_or_default();
        let result = match run.ended {
            Some(_) => run.result.clone(),
            None => format!("running with pid {}", run.pid),
        };
        line("run:", format!("{started}  {result}"));
    }
    text
}

/// A time to the second.
pub(super) fn time(time: Timestamp) -> String {
    jiff::Timestamp::new(time.seconds, 0).map_or_else(|_| String::new(), |time| time.to_string())
}

fn duration(time: Duration) -> String {
    std::time::Duration::try_from(time)
        .map(|time| humantime::format_duration(time).to_string())
        .unwrap_or_default()
}
