//! `mainstay schedule calendar`

use clap::Args;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use mainstay_schedule::Calendar;
use serde_json::{Value, json};

use crate::cli::{Format, Global};
use crate::failure::{Failure, Outcome};
use crate::output;

/// Show the next times of a calendar expression; no node is called
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay schedule calendar 'Mon..Fri 06:30 Europe/Zurich'\n  \
    mainstay schedule calendar '*/15 * * * *' --count 3")]
pub struct Show {
    /// Calendar expression, of systemd or of cron
    expression: String,
    /// Number of times
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
    /// Time zone of an expression that names none
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    time_zone: String,
}

impl Show {
    pub(super) fn run(self, global: &Global) -> Outcome {
        let calendar: Calendar = (self.expression.parse())
            .map_err(|error: mainstay_schedule::BadCalendar| Failure::usage(error.to_string()))?;
        let zone = TimeZone::get(&self.time_zone).map_err(|_| {
            Failure::usage(format!("the time zone {:?} is unknown", self.time_zone))
        })?;
        let mut times = Vec::new();
        let mut now = Timestamp::now();
        while times.len() < usize::from(self.count)
            && let Some(next) = calendar.next_after(now, &zone)
        {
            times.push(next);
            now = next;
        }
        if times.is_empty() {
            let text = format!("the calendar {calendar} has no time in the next 60 years");
            return Err(Failure::usage(text));
        }
        if global.output != Format::Table {
            let times: Vec<Value> = times.iter().map(|time| json!(time.to_string())).collect();
            return output::print_document(global.output, &json!({ "times": times }));
        }
        let line = |time: &Timestamp| {
            let zoned = time.to_zoned(zone.clone());
            zoned.strftime("%a %Y-%m-%d %H:%M:%S %Z\n").to_string()
        };
        output::print(&times.iter().map(line).collect::<String>())
    }
}
