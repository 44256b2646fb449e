//! All that is known of one node.

use std::time::Duration;

use mainstay_api::machine::{CpUsInfo, ServiceList, Version};

use super::{Cpu, Disks, Memory, Mount, Network, Processes, Reading, Round, mounts};

/// Clocks are set now and then; a start this much apart is another one.
const SAME_START: u64 = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Nothing has come yet.
    Asked,
    Live,
    Lost {
        since: Duration,
        why: String,
    },
}

#[derive(Debug)]
pub struct Node {
    /// As the user named it, or where it was reached.
    pub name: String,
    pub standing: Standing,
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
    pub logs: Reading<Vec<String>>,
    /// Rounds taken in since it is live: with two of them there are rates.
    pub rounds: u32,
}

impl Node {
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            standing: Standing::Asked,
            hostname: Reading::Awaited,
            version: Reading::Awaited,
            cpu_model: Reading::Awaited,
            load: Reading::Awaited,
            cpu: Reading::Awaited,
            memory: Reading::Awaited,
            disks: Reading::Awaited,
            mounts: Reading::Awaited,
            network: Reading::Awaited,
            processes: Reading::Awaited,
            services: Reading::Awaited,
            logs: Reading::Awaited,
            rounds: 0,
        }
    }

    pub fn take_in(&mut self, round: Round) {
        let at = round.at;
        self.standing = Standing::Live;
        self.rounds = self.rounds.saturating_add(1);
        if let (Some(Ok(now)), Some(before)) = (&round.system, self.cpu.known())
            && now.boot_time.abs_diff(before.boot_time()) > SAME_START
        {
            self.forget_counters();
        }
        self.hostname
            .take_in(round.hostname, |_, message| message.hostname);
        self.version.take_in(round.version, |_, message| message);
        self.cpu_model
            .take_in(round.cpu_info, |_, message| model_name(&message));
        self.load.take_in(round.load, |_, message| {
            [message.load1, message.load5, message.load15]
        });
        self.cpu.take_in(round.system, Cpu::figure);
        self.memory.take_in(round.memory, |earlier, message| {
            Memory::figure(earlier, &message)
        });
        self.disks.take_in(round.disks, |earlier, message| {
            Disks::figure(earlier, at, message)
        });
        self.mounts
            .take_in(round.mounts, |_, message| mounts(message));
        self.network.take_in(round.network, |earlier, message| {
            Network::figure(earlier, at, message)
        });
        self.processes.take_in(round.processes, |earlier, message| {
            Processes::figure(earlier.as_ref(), at, message)
        });
        self.services.take_in(round.services, |_, message| message);
        self.logs.take_in(round.logs, |_, message| message.ids);
    }

    /// The first loss counts: what was tried since then is only why it lasts.
    pub fn lose(&mut self, at: Duration, why: String) {
        self.rounds = 0;
        self.standing = match self.standing {
            Standing::Lost { since, .. } => Standing::Lost { since, why },
            Standing::Asked | Standing::Live => Standing::Lost { since: at, why },
        };
    }

    pub fn is_lost(&self) -> bool {
        matches!(self.standing, Standing::Lost { .. })
    }

    /// The machine started anew: what its kernel counted before says nothing about now.
    fn forget_counters(&mut self) {
        self.cpu = Reading::Awaited;
        self.disks = Reading::Awaited;
        self.network = Reading::Awaited;
        self.processes = Reading::Awaited;
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
    fn rates_begin_with_the_second_round_and_again_after_a_reboot() {
        let mut node = Node::new("a");
        node.take_in(round(1, 1000, 10));
        assert_eq!(read_rate(&node), None);
        node.take_in(round(2, 1001, 20));
        assert_eq!(
            read_rate(&node),
            Some(5120.0),
            "a clock may be set a little"
        );
        assert_eq!(node.cpu.known().unwrap().total.unwrap().busy, 50.0);
        // Long enough after its start, a machine has counted more than before it.
        node.take_in(round(500, 1400, 1_000_000));
        assert_eq!(read_rate(&node), None);
        node.take_in(round(501, 1400, 1_000_002));
        assert_eq!(read_rate(&node), Some(1024.0));
    }

    #[test]
    fn a_loss_keeps_what_was_known_and_since_when() {
        let mut node = Node::new("a");
        node.take_in(round(1, 1000, 10));
        node.take_in(round(2, 1000, 20));
        node.lose(Duration::from_secs(3), "gone".to_owned());
        node.lose(Duration::from_secs(9), "still gone".to_owned());
        let lost = Standing::Lost {
            since: Duration::from_secs(3),
            why: "still gone".to_owned(),
        };
        assert_eq!(node.standing, lost);
        assert_eq!(read_rate(&node), Some(5120.0));
        node.take_in(round(12, 1000, 40));
        assert_eq!(node.standing, Standing::Live);
        assert_eq!(read_rate(&node), Some(1024.0), "over the whole gap");
    }

    #[test]
    fn what_a_node_does_not_tell_leaves_the_rest_alone() {
        let mut node = Node::new("a");
        node.take_in(Round {
            services: Some(Err("not served".to_owned())),
            ..round(1, 1000, 10)
        });
        assert!(matches!(&node.services, Reading::Withheld(why) if why == "not served"));
        assert!(node.cpu.known().is_some());
        node.take_in(round(2, 1000, 10));
        assert!(
            matches!(node.services, Reading::Withheld(_)),
            "not asked is not answered"
        );
    }
}
