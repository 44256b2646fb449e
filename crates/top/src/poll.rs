//! Polls one node. Every node has a poller of its own, so that a slow or lost one delays no other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mainstay_api::os::{ContainersRequest, StatsRequest};
use mainstay_client::{Error, ErrorKind, chain, request_to_nodes};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

use super::call::call;
use super::link::{Connection, Link, State};
use super::model::{Answer, Round, WorkloadAnswers};

/// Namespace of cells.
const CELLS: &str = "mainstay";

/// Slowly changing values are polled once in this many rounds.
const SLOW_POLL_ROUNDS: u64 = 5;

/// The result of polling a node once.
#[derive(Debug)]
pub enum Update {
    Round(Box<Round>),
    Lost { at: Duration, error: Arc<Error> },
}

/// The nodes that are polled in full, processes included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    None,
    Node(usize),
    All,
}

impl Detail {
    fn includes(self, node: usize) -> bool {
        match self {
            Self::None => false,
            Self::Node(only) => only == node,
            Self::All => true,
        }
    }
}

#[derive(Debug)]
pub struct Poller {
    /// Index of the node among all.
    pub index: usize,
    /// Name that the endpoint forwards to; `None` for the endpoint itself.
    pub node: Option<String>,
    pub link: Link,
    pub interval: Duration,
    /// Bound on one answer.
    pub timeout: Duration,
    /// Reference point of the times in rounds.
    pub start: Instant,
    pub detail: watch::Receiver<Detail>,
    pub updates: mpsc::Sender<(usize, Update)>,
}

impl Poller {
    /// Polls until the receiver of the updates is dropped.
    pub async fn run(mut self) {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Consecutive rounds that were answered.
        let mut count: u64 = 0;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                changed = self.detail.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    if !self.detail.borrow_and_update().includes(self.index) {
                        continue;
                    }
                    // The node was opened: poll everything, now.
                    count = 0;
                    ticks.reset();
                }
            }
            let (update, link_is_up) = match self.link.state() {
                State::Up(connection) => match self.round(&connection, count).await {
                    Ok(round) => {
                        count += 1;
                        (Update::Round(Box::new(round)), true)
                    }
                    Err(error) => {
                        count = 0;
                        let error = Arc::new(error);
                        let link_is_up = self.keeps_link(&connection, &error);
                        (self.lost(error), link_is_up)
                    }
                },
                State::Down(error) => {
                    count = 0;
                    (self.lost(error), false)
                }
            };
            if self.updates.send((self.index, update)).await.is_err() {
                return;
            }
            if !link_is_up {
                self.link.changed().await;
                ticks.reset_immediately();
            }
        }
    }

    fn lost(&self, error: Arc<Error>) -> Update {
        let at = self.start.elapsed();
        Update::Lost { at, error }
    }

    /// Reports a lost connection. Returns whether the connection outlives the error.
    fn keeps_link(&self, connection: &Connection, error: &Arc<Error>) -> bool {
        // No other node is between us and the endpoint: if that hangs, the connection does.
        let endpoint_hangs = error.kind() == ErrorKind::Timeout && self.node.is_none();
        let lost = error.is_lost_connection() || endpoint_hangs;
        if lost {
            self.link.report_lost(connection, Arc::clone(error));
        }
        !lost
    }

    /// Calls all methods at once. A node that answers any of them is up, and the errors of the
    /// others are part of the round.
    async fn round(&self, connection: &Connection, count: u64) -> Result<Round, Error> {
        let machine = connection.client.machine();
        let first = count == 0;
        let slow = count.is_multiple_of(SLOW_POLL_ROUNDS);
        // A list of processes is long, and the overview shows only their number.
        let full_detail = self.detail.borrow().includes(self.index);
        let full = slow || full_detail;
        macro_rules! poll {
            ($when:expr, $method:ident) => {{
                let mut machine = machine.clone();
                async move {
                    if !$when {
                        return None;
                    }
                    let request = request_to_nodes(self.node.as_slice(), ());
                    Some(call(self.timeout, machine.$method(request)).await)
                }
            }};
        }
        let answers = tokio::join!(
            poll!(first, hostname),
            poll!(first, version),
            poll!(first, cpu_info),
            poll!(true, load_avg),
            poll!(true, system_stat),
            poll!(true, memory),
            poll!(true, disk_stats),
            poll!(slow, mounts),
            poll!(true, network_device_stats),
            poll!(full, processes),
            poll!(slow, service_list),
            poll!(slow, logs_containers),
            self.workloads(connection, slow && full_detail),
        );
        let mut results = Results::default();
        let round = Round {
            at: self.start.elapsed(),
            hostname: results.add(answers.0),
            version: results.add(answers.1),
            cpu_info: results.add(answers.2),
            load: results.add(answers.3),
            system: results.add(answers.4),
            memory: results.add(answers.5),
            disks: results.add(answers.6),
            mounts: results.add(answers.7),
            network: results.add(answers.8),
            processes: results.add(answers.9),
            services: results.add(answers.10),
            logs: results.add(answers.11),
            workloads: results.add(answers.12),
        };
        match results.error {
            Some(error) if !results.answered => Err(error),
            _ => Ok(round),
        }
    }
}

impl Poller {
    /// Asks for containers and cells. Without a container runtime the node still has its cells.
    async fn workloads(
        &self,
        connection: &Connection,
        wanted: bool,
    ) -> Option<Result<WorkloadAnswers, Error>> {
        if !wanted {
            return None;
        }
        let all = self.workloads_of(connection, "").await;
        if !matches!(&all, Err(error) if !error.is_lost_connection()) {
            return Some(all);
        }
        let cells = self.workloads_of(connection, CELLS).await;
        Some(cells.or(all))
    }

    async fn workloads_of(
        &self,
        connection: &Connection,
        namespace: &str,
    ) -> Result<WorkloadAnswers, Error> {
        let (mut listed, mut measured) = (connection.client.machine(), connection.client.machine());
        let list = ContainersRequest {
            namespace: namespace.to_owned(),
            ..ContainersRequest::default()
        };
        let measure = StatsRequest {
            namespace: namespace.to_owned(),
            ..StatsRequest::default()
        };
        let (containers, stats) = tokio::join!(
            call(
                self.timeout,
                listed.containers(request_to_nodes(self.node.as_slice(), list))
            ),
            call(
                self.timeout,
                measured.stats(request_to_nodes(self.node.as_slice(), measure))
            ),
        );
        Ok(WorkloadAnswers {
            containers: containers?,
            stats: stats?,
        })
    }
}

/// Distinguishes a node that refuses a method from one that is lost.
#[derive(Debug, Default)]
struct Results {
    answered: bool,
    /// The first error, or the latest that says that the connection is lost.
    error: Option<Error>,
}

impl Results {
    fn add<T>(&mut self, answer: Option<Result<T, Error>>) -> Answer<T> {
        match answer? {
            Ok(message) => {
                self.answered = true;
                Some(Ok(message))
            }
            Err(error) => {
                let lost = error.is_lost_connection();
                let reason = (!lost).then(|| Err(chain(&error)));
                if self.error.is_none() || lost {
                    self.error = Some(error);
                }
                reason
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    fn refused(message: &str) -> Option<Result<(), Error>> {
        Some(Err(Status::unknown(message).into()))
    }

    #[test]
    fn a_lost_connection_outranks_errors_of_the_node() {
        let mut results = Results::default();
        assert_eq!(
            results.add(refused("not served")),
            Some(Err("not served".to_owned()))
        );
        let broken = std::io::Error::other("broken pipe");
        let lost = Err(Status::from_error(Box::new(broken)).into());
        let lost: Answer<()> = results.add(Some(lost));
        assert_eq!(lost, None, "a lost connection is no answer of the node");
        results.add(refused("late"));
        assert!(results.error.as_ref().unwrap().is_lost_connection());
        assert!(!results.answered);
        assert_eq!(results.add(Some(Ok(7))), Some(Ok(7)));
        assert_eq!(results.add::<u8>(None), None);
        assert!(results.answered);
    }
}
