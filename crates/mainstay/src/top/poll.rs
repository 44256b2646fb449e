//! Asks one node again and again. Every node has a poller of its own, so that one that is slow or
//! gone holds up no other.

use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

use super::ask::{Trouble, ask};
use super::link::{Connection, Link, State};
use super::model::{Answer, Round};
use crate::client::Client;
use crate::failure::{Exit, Failure};

/// What changes slowly is asked this many times less often.
const SELDOM: u64 = 5;

/// What a poller has to tell.
#[derive(Debug)]
pub enum News {
    Round(Box<Round>),
    Lost { at: Duration, failure: Failure },
}

/// Which nodes are looked at closely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gaze {
    Nobody,
    One(usize),
    Everybody,
}

impl Gaze {
    fn is_on(self, node: usize) -> bool {
        match self {
            Self::Nobody => false,
            Self::One(one) => one == node,
            Self::Everybody => true,
        }
    }
}

#[derive(Debug)]
pub struct Poller {
    /// Which node of all it is.
    pub index: usize,
    /// Its name for whoever forwards; none is the endpoint itself.
    pub node: Option<String>,
    pub link: Link,
    pub interval: Duration,
    /// For one answer.
    pub patience: Duration,
    /// Where all rounds count their time from.
    pub start: Instant,
    pub gaze: watch::Receiver<Gaze>,
    pub news: mpsc::Sender<(usize, News)>,
}

impl Poller {
    /// Ends when nobody takes the news any more.
    pub async fn run(mut self) {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Rounds in a row that were answered.
        let mut count: u64 = 0;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                changed = self.gaze.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    if !self.gaze.borrow_and_update().is_on(self.index) {
                        continue;
                    }
                    // Somebody looks: ask for everything, now.
                    count = 0;
                    ticks.reset();
                }
            }
            let (news, link_is_up) = match self.link.state() {
                State::Up(connection) => match self.round(&connection, count).await {
                    Ok(round) => {
                        count += 1;
                        (News::Round(Box::new(round)), true)
                    }
                    Err(trouble) => {
                        count = 0;
                        let link_is_up = self.tell_link(&connection, &trouble);
                        (self.lost(trouble.failure()), link_is_up)
                    }
                },
                State::Down { exit, why } => {
                    count = 0;
                    (self.lost(Failure::new(exit, why)), false)
                }
            };
            if self.news.send((self.index, news)).await.is_err() {
                return;
            }
            if !link_is_up {
                self.link.changed().await;
                ticks.reset_immediately();
            }
        }
    }

    fn lost(&self, failure: Failure) -> News {
        let at = self.start.elapsed();
        News::Lost { at, failure }
    }

    /// Whether the connection outlives the trouble.
    fn tell_link(&self, connection: &Connection, trouble: &Trouble) -> bool {
        let failure = match trouble {
            Trouble::Link(failure) => failure,
            // Nobody stands between us and the endpoint itself: if it hangs, the connection does.
            Trouble::Node(failure) if failure.exit == Exit::Timeout && self.node.is_none() => {
                failure
            }
            Trouble::Node(_) => return true,
        };
        self.link.lost(connection, failure);
        false
    }

    /// Asks for everything at once. A node that answers anything is there, and what it does not
    /// answer is told with the rest.
    async fn round(&self, connection: &Connection, count: u64) -> Result<Round, Trouble> {
        let machine = connection.client.machine();
        let once = count == 0;
        let seldom = count.is_multiple_of(SELDOM);
        // A list of processes is long, and from afar only their number is seen.
        let often = seldom || self.gaze.borrow().is_on(self.index);
        macro_rules! question {
            ($when:expr, $method:ident) => {{
                let mut machine = machine.clone();
                async move {
                    if !$when {
                        return None;
                    }
                    let request = Client::request_to(self.node.as_ref(), ());
                    Some(ask(self.patience, machine.$method(request)).await)
                }
            }};
        }
        let answers = tokio::join!(
            question!(once, hostname),
            question!(once, version),
            question!(once, cpu_info),
            question!(true, load_avg),
            question!(true, system_stat),
            question!(true, memory),
            question!(true, disk_stats),
            question!(seldom, mounts),
            question!(true, network_device_stats),
            question!(often, processes),
            question!(seldom, service_list),
            question!(seldom, logs_containers),
        );
        let mut sieve = Sieve::default();
        let round = Round {
            at: self.start.elapsed(),
            hostname: sieve.sift(answers.0),
            version: sieve.sift(answers.1),
            cpu_info: sieve.sift(answers.2),
            load: sieve.sift(answers.3),
            system: sieve.sift(answers.4),
            memory: sieve.sift(answers.5),
            disks: sieve.sift(answers.6),
            mounts: sieve.sift(answers.7),
            network: sieve.sift(answers.8),
            processes: sieve.sift(answers.9),
            services: sieve.sift(answers.10),
            logs: sieve.sift(answers.11),
        };
        match sieve.trouble {
            Some(trouble) if !sieve.answered => Err(trouble),
            _ => Ok(round),
        }
    }
}

/// Tells answers from troubles, and a node that withholds something from one that is gone.
#[derive(Debug, Default)]
struct Sieve {
    answered: bool,
    /// The first, unless a later one says that the connection is gone.
    trouble: Option<Trouble>,
}

impl Sieve {
    fn sift<T>(&mut self, answer: Option<Result<T, Trouble>>) -> Answer<T> {
        match answer? {
            Ok(message) => {
                self.answered = true;
                Some(Ok(message))
            }
            Err(trouble) => {
                let withheld = match &trouble {
                    Trouble::Node(failure) => Some(Err(failure.message.clone())),
                    Trouble::Link(_) => None,
                };
                if self.trouble.is_none() || withheld.is_none() {
                    self.trouble = Some(trouble);
                }
                withheld
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(what: &str) -> Failure {
        Failure::new(Exit::Failed, what)
    }

    #[test]
    fn a_lost_connection_is_the_reason_that_counts() {
        let mut sieve = Sieve::default();
        let node: Answer<()> = sieve.sift(Some(Err(Trouble::Node(failure("not served")))));
        assert_eq!(node, Some(Err("not served".to_owned())));
        let link: Answer<()> = sieve.sift(Some(Err(Trouble::Link(failure("gone")))));
        assert_eq!(link, None, "that is no answer of the node");
        let _: Answer<()> = sieve.sift(Some(Err(Trouble::Node(failure("late")))));
        assert!(matches!(sieve.trouble, Some(Trouble::Link(_))));
        assert!(!sieve.answered);
        assert_eq!(sieve.sift(Some(Ok(7))), Some(Ok(7)));
        assert_eq!(sieve.sift::<u8>(None), None);
        assert!(sieve.answered);
    }
}
