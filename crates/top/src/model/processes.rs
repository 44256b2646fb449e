//! Processes and their CPU usage.

use std::collections::HashMap;
use std::time::Duration;

use mainstay_api::os::{self, ProcessInfo};

use crate::rates::seconds_per_second;

#[derive(Debug)]
pub struct Process {
    pub info: ProcessInfo,
    /// In percent of one CPU; `None` until there are two samples.
    pub cpu: Option<f64>,
}

impl Process {
    /// Returns the command line, or the name in brackets of a kernel thread.
    pub fn command_line(&self) -> String {
        if self.info.args.is_empty() {
            format!("[{}]", self.info.command)
        } else {
            self.info.args.clone()
        }
    }

    /// Returns `true` if the name or the arguments contain `text`, which is in lower case.
    pub fn matches(&self, text: &str) -> bool {
        self.info.command.to_lowercase().contains(text)
            || self.info.args.to_lowercase().contains(text)
    }
}

#[derive(Debug)]
pub struct Processes {
    pub list: Vec<Process>,
    /// Number of processes in state R.
    pub running: usize,
    at: Duration,
}

impl Processes {
    pub fn update(earlier: Option<&Self>, at: Duration, message: os::Process) -> Self {
        let elapsed = earlier.map(|before| at.saturating_sub(before.at));
        let before: HashMap<i32, &ProcessInfo> = earlier
            .iter()
            .flat_map(|before| &before.list)
            .map(|process| (process.info.pid, &process.info))
            .collect();
        let share = |info: &ProcessInfo| {
            // The kernel reuses PIDs; another name is another process.
            let before = before
                .get(&info.pid)
                .filter(|before| before.command == info.command)?;
            Some(100.0 * seconds_per_second(before.cpu_time, info.cpu_time, elapsed?)?)
        };
        let list = message
            .processes
            .into_iter()
            .map(|info| Process {
                cpu: share(&info),
                info,
            })
            .collect::<Vec<Process>>();
        let runs = |process: &&Process| process.info.state == "R";
        let running = list.iter().filter(runs).count();
        Self { list, running, at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_usage_needs_two_samples_of_one_process() {
        let process = |pid, command: &str, cpu_time| ProcessInfo {
            pid,
            command: command.to_owned(),
            cpu_time,
            ..ProcessInfo::default()
        };
        let message = |processes| os::Process {
            metadata: None,
            processes,
        };
        let second = Duration::from_secs(1);
        let first = vec![process(1, "init", 5.0), process(7, "web", 9.0)];
        let first = Processes::update(None, second, message(first));
        assert!(first.list.iter().all(|process| process.cpu.is_none()));
        let next = vec![
            process(1, "init", 6.0),
            process(7, "other", 9.5),
            process(8, "web", 0.1),
        ];
        let next = Processes::update(Some(&first), 3 * second, message(next));
        let shares: Vec<_> = next.list.iter().map(|process| process.cpu).collect();
        assert_eq!(shares, [Some(50.0), None, None]);
        let anew = vec![process(1, "init", 0.5)];
        let anew = Processes::update(Some(&next), 4 * second, message(anew));
        assert_eq!(anew.list[0].cpu, None, "the machine rebooted");
    }
}
