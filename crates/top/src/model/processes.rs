//! Processes and their CPU usage.

use std::collections::HashMap;
use std::time::Duration;

use mainstay_api::os::{self, ProcessInfo};

use crate::rates::{per_second, seconds_per_second};

#[derive(Debug)]
pub struct Process {
    pub info: ProcessInfo,
    /// In percent of one CPU; `None` until there are two samples.
    pub cpu: Option<f64>,
    /// Bytes per second from storage; `None` until there are two samples, and where the node does
    /// not know them.
    pub read: Option<f64>,
    /// Bytes per second to storage.
    pub write: Option<f64>,
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

    /// Returns the name of the user, else the UID.
    pub fn user(&self) -> String {
        match (self.info.user.as_str(), self.info.uid) {
            ("", Some(uid)) => uid.to_string(),
            ("", None) => "-".to_owned(),
            (name, _) => name.to_owned(),
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
        // The kernel reuses PIDs; another name is another process.
        let before = |info: &ProcessInfo| {
            let before = before.get(&info.pid).copied();
            before.filter(|before| before.command == info.command)
        };
        let traffic = |info: &ProcessInfo, bytes: fn(&ProcessInfo) -> Option<u64>| {
            per_second(bytes(before(info)?)?, bytes(info)?, elapsed?)
        };
        let share = |info: &ProcessInfo| {
            let before = before(info)?;
            Some(100.0 * seconds_per_second(before.cpu_time, info.cpu_time, elapsed?)?)
        };
        let list = message
            .processes
            .into_iter()
            .map(|info| Process {
                cpu: share(&info),
                read: traffic(&info, |info| info.read_bytes),
                write: traffic(&info, |info| info.write_bytes),
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
    fn io_rates_need_two_samples_that_the_node_could_read() {
        let process = |pid, bytes| ProcessInfo {
            pid,
            read_bytes: bytes,
            write_bytes: bytes.map(|bytes| bytes * 2),
            ..ProcessInfo::default()
        };
        let message = |processes| os::Process {
            metadata: None,
            processes,
        };
        let second = Duration::from_secs(1);
        let first = vec![process(1, Some(1000)), process(2, None)];
        let first = Processes::update(None, second, message(first));
        assert_eq!(first.list[0].read, None);
        let next = vec![process(1, Some(3000)), process(2, Some(5))];
        let next = Processes::update(Some(&first), 3 * second, message(next));
        assert_eq!(
            (next.list[0].read, next.list[0].write),
            (Some(1000.0), Some(2000.0))
        );
        assert_eq!((next.list[1].read, next.list[1].write), (None, None));
    }

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
