//! Containers and executables of cells, with memory and CPU usage.

use std::collections::HashMap;
use std::time::Duration;

use mainstay_api::os::{Container, ContainerInfo, Stat, Stats};

use crate::rates::per_second;

/// Nanoseconds of CPU time per second that are one percent of a CPU.
const NANOSECONDS_PER_PERCENT: f64 = 1e7;

/// The answers of a node about its workloads.
#[derive(Debug, Default)]
pub struct WorkloadAnswers {
    pub containers: Container,
    pub stats: Stats,
}

#[derive(Debug)]
pub struct Workload {
    pub info: ContainerInfo,
    /// `None` for one that does not run.
    pub memory_bytes: Option<u64>,
    /// In percent of one CPU; `None` until there are two samples.
    pub cpu: Option<f64>,
}

impl Workload {
    pub fn is_running(&self) -> bool {
        self.info.pid != 0
    }
}

#[derive(Debug)]
pub struct Workloads {
    /// Running ones first, then by namespace and id.
    pub list: Vec<Workload>,
    cpu_nanoseconds: HashMap<(String, String), u64>,
    at: Duration,
}

impl Workloads {
    pub fn update(earlier: Option<&Self>, at: Duration, answers: WorkloadAnswers) -> Self {
        let key = |stat: &Stat| (stat.namespace.clone(), stat.id.clone());
        let stats: HashMap<_, _> = answers.stats.stats.iter().map(|s| (key(s), s)).collect();
        let workload = |info: ContainerInfo| {
            let key = (info.namespace.clone(), info.id.clone());
            let stat = stats.get(&key).filter(|_| info.pid != 0);
            let cpu = stat.zip(earlier).and_then(|(stat, earlier)| {
                let before = *earlier.cpu_nanoseconds.get(&key)?;
                let elapsed = at.saturating_sub(earlier.at);
                Some(per_second(before, stat.cpu_usage, elapsed)? / NANOSECONDS_PER_PERCENT)
            });
            Workload {
                memory_bytes: stat.map(|stat| stat.memory_usage),
                cpu,
                info,
            }
        };
        let containers = answers.containers.containers.into_iter();
        let mut list: Vec<Workload> = containers.map(workload).collect();
        list.sort_by(|a, b| {
            let order =
                |w: &Workload| (!w.is_running(), w.info.namespace.clone(), w.info.id.clone());
            order(a).cmp(&order(b))
        });
        let cpu_nanoseconds = stats.into_iter().map(|(key, stat)| (key, stat.cpu_usage));
        Self {
            list,
            cpu_nanoseconds: cpu_nanoseconds.collect(),
            at,
        }
    }

    pub fn running(&self) -> usize {
        self.list
            .iter()
            .filter(|workload| workload.is_running())
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(cpu_seconds: u64) -> WorkloadAnswers {
        let info = |id: &str, pid| ContainerInfo {
            namespace: "mainstay".to_owned(),
            id: id.to_owned(),
            pid,
            ..ContainerInfo::default()
        };
        WorkloadAnswers {
            containers: Container {
                metadata: None,
                containers: vec![info("a/exited", 0), info("b/server", 7)],
            },
            stats: Stats {
                metadata: None,
                stats: vec![Stat {
                    namespace: "mainstay".to_owned(),
                    id: "b/server".to_owned(),
                    memory_usage: 4096,
                    cpu_usage: cpu_seconds * 1_000_000_000,
                    ..Stat::default()
                }],
            },
        }
    }

    #[test]
    fn running_workloads_come_first_and_usage_needs_two_samples() {
        let first = Workloads::update(None, Duration::from_secs(1), answers(1));
        assert_eq!((first.list[0].cpu, first.running()), (None, 1));
        let next = Workloads::update(Some(&first), Duration::from_secs(3), answers(2));
        assert_eq!(next.list[0].info.id, "b/server");
        assert_eq!(next.list[0].cpu, Some(50.0));
        assert_eq!(next.list[0].memory_bytes, Some(4096));
        assert_eq!((next.list[1].cpu, next.list[1].memory_bytes), (None, None));
        let anew = Workloads::update(Some(&next), Duration::from_secs(4), answers(0));
        assert_eq!(anew.list[0].cpu, None, "it was restarted");
    }
}
