//! The data of one node.

use std::time::Duration;

use mainstay_api::machine::{CpUsInfo, ServiceList, Version};

use super::{Cpu, Disks, Memory, Mount, Network, Processes, Reading, Round, Workloads, mounts};

/// Boot times shift when the clock is set; a larger difference in seconds is a reboot.
const BOOT_TIME_TOLERANCE: u64 = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeState {
    /// No answer yet.
    Pending,
    Up,
    Lost {
        since: Duration,
        reason: String,
    },
}

#[derive(Debug)]
pub struct Node {
    /// As the user named it, else the endpoint.
    pub name: String,
    pub state: NodeState,
    pub hostname: Reading<String>,
    pub version: Reading<Version>,
    pub cpu_model: Reading<String>,
    pub load: Reading<[f64; 3]>,
    pub cpu: Reading<Cpu>,
    pub memory: Reading<Memory>,
    pub disks: Reading<Disks>,
    pub mounts: Reading<Vec<Mount>>,
    pub network: Reading<Network>,
    pub processes: Reading<Processes>,
    pub services: Reading<ServiceList>,
    pub workloads: Reading<Workloads>,
    pub logs: Reading<Vec<String>>,
    /// Rounds since the node is up; rates need two.
    pub rounds: u32,
}

impl Node {
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            state: NodeState::Pending,
            hostname: Reading::Pending,
            version: Reading::Pending,
            cpu_model: Reading::Pending,
            load: Reading::Pending,
            cpu: Reading::Pending,
            memory: Reading::Pending,
            disks: Reading::Pending,
            mounts: Reading::Pending,
            network: Reading::Pending,
            processes: Reading::Pending,
            services: Reading::Pending,
            workloads: Reading::Pending,
            logs: Reading::Pending,
            rounds: 0,
        }
    }

    pub fn apply_round(&mut self, round: Round) {
        let at = round.at;
        self.state = NodeState::Up;
        self.rounds = self.rounds.saturating_add(1);
        if let (Some(Ok(now)), Some(before)) = (&round.system, self.cpu.known())
            && now.boot_time.abs_diff(before.boot_time()) > BOOT_TIME_TOLERANCE
        {
            self.reset_counters();
        }
        self.hostname
            .apply(round.hostname, |_, message| message.hostname);
        self.version.apply(round.version, |_, message| message);
        self.cpu_model
            .apply(round.cpu_info, |_, message| model_name(&message));
        self.load.apply(round.load, |_, message| {
            [message.load1, message.load5, message.load15]
        });
        self.cpu.apply(round.system, Cpu::update);
        self.memory.apply(round.memory, |earlier, message| {
            Memory::update(earlier, &message)
        });
        self.disks.apply(round.disks, |earlier, message| {
            Disks::update(earlier, at, message)
        });
        self.mounts
            .apply(round.mounts, |_, message| mounts(message));
        self.network.apply(round.network, |earlier, message| {
            Network::update(earlier, at, message)
        });
        self.processes.apply(round.processes, |earlier, message| {
            Processes::update(earlier.as_ref(), at, message)
        });
        self.services.apply(round.services, |_, message| message);
        self.workloads.apply(round.workloads, |earlier, answers| {
            Workloads::update(earlier.as_ref(), at, answers)
        });
        self.logs.apply(round.logs, |_, message| message.ids);
    }

    /// Marks the node as lost. Later errors change the reason, not the time.
    pub fn mark_lost(&mut self, at: Duration, reason: String) {
        self.rounds = 0;
        self.state = match self.state {
            NodeState::Lost { since, .. } => NodeState::Lost { since, reason },
            NodeState::Pending | NodeState::Up => NodeState::Lost { since: at, reason },
        };
    }

    pub fn is_lost(&self) -> bool {
        matches!(self.state, NodeState::Lost { .. })
    }

    /// Drops all counters after a reboot.
    fn reset_counters(&mut self) {
        self.cpu = Reading::Pending;
        self.disks = Reading::Pending;
        self.network = Reading::Pending;
        self.processes = Reading::Pending;
        self.workloads = Reading::Pending;
    }
}

fn model_name(message: &CpUsInfo) -> String {
    let first = message.cpu_info.first();
    first.map_or_else(String::new, |cpu| cpu.model_name.clone())
}

#[cfg(test)]
mod tests {
    use mainstay_api::machine::{CpuStat, DiskStat, DiskStats, SystemStat};

    use super::*;

    fn round(second: u64, boot_time: u64, sectors: u64) -> Round {
        Round {
            at: Duration::from_secs(second),
            system: Some(Ok(SystemStat {
                boot_time,
                cpu_total: Some(CpuStat {
                    user: second as f64,
                    idle: second as f64,
                    ..CpuStat::default()
                }),
                ..SystemStat::default()
            })),
            disks: Some(Ok(DiskStats {
                devices: vec![DiskStat {
                    name: "sda".to_owned(),
                    read_completed: 1,
                    read_sectors: sectors,
                    ..DiskStat::default()
                }],
                ..DiskStats::default()
            })),
            ..Round::default()
        }
    }

    fn read_rate(node: &Node) -> Option<f64> {
        Some(node.disks.known()?.total?.inward)
    }

    #[test]
    fn rates_need_two_rounds_and_start_again_after_a_reboot() {
        let mut node = Node::new("a");
        node.apply_round(round(1, 1000, 10));
        assert_eq!(read_rate(&node), None);
        node.apply_round(round(2, 1001, 20));
        assert_eq!(read_rate(&node), Some(5120.0), "a clock may be adjusted");
        assert_eq!(node.cpu.known().unwrap().total.unwrap().busy, 50.0);
        // Long after a reboot, counters can exceed their earlier values.
        node.apply_round(round(500, 1400, 1_000_000));
        assert_eq!(read_rate(&node), None);
        node.apply_round(round(501, 1400, 1_000_002));
        assert_eq!(read_rate(&node), Some(1024.0));
    }

    #[test]
    fn a_lost_node_keeps_its_last_readings_and_time() {
        let mut node = Node::new("a");
        node.apply_round(round(1, 1000, 10));
        node.apply_round(round(2, 1000, 20));
        node.mark_lost(Duration::from_secs(3), "gone".to_owned());
        node.mark_lost(Duration::from_secs(9), "still gone".to_owned());
        let lost = NodeState::Lost {
            since: Duration::from_secs(3),
            reason: "still gone".to_owned(),
        };
        assert_eq!(node.state, lost);
        assert_eq!(read_rate(&node), Some(5120.0));
        node.apply_round(round(12, 1000, 40));
        assert_eq!(node.state, NodeState::Up);
        assert_eq!(read_rate(&node), Some(1024.0), "over the whole interval");
    }

    #[test]
    fn an_unavailable_reading_leaves_the_others_known() {
        let mut node = Node::new("a");
        node.apply_round(Round {
            services: Some(Err("not served".to_owned())),
            ..round(1, 1000, 10)
        });
        assert!(matches!(&node.services, Reading::Unavailable(reason) if reason == "not served"));
        assert!(node.cpu.known().is_some());
        node.apply_round(round(2, 1000, 10));
        assert!(
            matches!(node.services, Reading::Unavailable(_)),
            "a skipped poll keeps the reading"
        );
    }
}
