//! `mainstay cell stop`

use std::time::Duration;

use clap::Args;
use mainstay_api::runtime::StopCellRequest;
use mainstay_client::format::parse_duration;
use nix::sys::signal::Signal;

use super::{MIN_STOP_TIMEOUT, connect};
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;

/// Stop an executable of a cell, or all of them; the cell remains
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay cell stop web server\n  \
    mainstay cell stop web                       all executables of the cell\n  \
    mainstay cell stop web server --signal INT --grace 1m\n\n\
    Processes that survive the grace period are killed. The command waits until the last one has exited,\n\
    regardless of --timeout.")]
pub struct Stop {
    /// Name of the cell
    cell: String,

    /// Name of the executable [default: all of the cell]
    name: Option<String>,

    /// Signal to send first: TERM, INT, 15, ...
    #[arg(long, default_value = "TERM", value_parser = signal)]
    signal: i32,

    /// Grace period before SIGKILL; 0s kills at once [default: that of the node, 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    grace: Option<Duration>,
}

impl Stop {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let timeout = stop_timeout(self.grace).max(global.timeout);
        let name = self.name.as_deref().unwrap_or_default();
        let request = request(&self.cell, name, self.signal, self.grace);
        let answers = client
            .call_each(timeout, &request, |request| {
                let mut cells = client.cells();
                async move { cells.stop(request).await }
            })
            .await?;
        let cell = &self.cell;
        let target = match name {
            "" => format!("all executables of cell {cell:?}"),
            name => format!("{name:?} in cell {cell:?}"),
        };
        if global.output == Format::Table {
            for answer in &answers {
                let prefix = client.message_prefix(&answer.node);
                output::print(&format!("{prefix}{target} stopped\n"))?;
            }
        } else {
            output::print_answers(global.output, "runtime.StopCellResponse", &answers)?;
        }
        client.finish()
    }
}

/// Returns the timeout of a stop with this grace period.
pub fn stop_timeout(grace: Option<Duration>) -> Duration {
    MIN_STOP_TIMEOUT.saturating_add(grace.unwrap_or_default())
}

pub fn request(cell: &str, name: &str, signal: i32, grace: Option<Duration>) -> StopCellRequest {
    StopCellRequest {
        cell_name: cell.to_owned(),
        executable_name: name.to_owned(),
        signal,
        // Longer than the wire type is as good as unlimited.
        grace: grace.map(|grace| {
            prost_types::Duration::try_from(grace).unwrap_or(prost_types::Duration {
                seconds: i64::MAX,
                nanos: 0,
            })
        }),
    }
}

/// Parses a signal by name, with or without `SIG`, or by number.
fn signal(text: &str) -> Result<i32, String> {
    if let Ok(number @ 1..=64) = text.parse() {
        return Ok(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let known: Result<Signal, _> = format!("SIG{name}").parse();
    known
        .map(|signal| signal as i32)
        .map_err(|_| "write the name or number of a signal: TERM, INT, KILL, 15".to_owned())
}

/// Returns the name of a signal, or its number if it has none.
pub fn signal_name(number: i32) -> String {
    Signal::try_from(number).map_or_else(
        |_| format!("signal {number}"),
        |signal| signal.as_str().to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_parsed_by_name_and_number() {
        for (text, number) in [("TERM", 15), ("sigint", 2), ("9", 9), ("64", 64)] {
            assert_eq!(signal(text), Ok(number), "{text}");
        }
        for text in ["", "SIG", "0", "65", "-9", "TERMINATE", "SIGSIGTERM"] {
            assert!(signal(text).is_err(), "{text:?}");
        }
        assert_eq!(signal_name(9), "SIGKILL");
        assert_eq!(signal_name(40), "signal 40");
    }

    #[test]
    fn a_grace_period_beyond_the_wire_type_saturates() {
        let request = request("c", "", 15, Some(Duration::MAX));
        assert_eq!(request.grace.unwrap().seconds, i64::MAX);
        assert_eq!(stop_timeout(Some(Duration::MAX)), Duration::MAX);
    }
}
