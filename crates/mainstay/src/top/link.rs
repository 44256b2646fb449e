//! The one connection that all questions go through, made again whenever it is lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::cli::Global;
use crate::client::Client;
use crate::failure::{Exit, Failure};

/// Whether there is a connection right now.
#[derive(Debug, Clone)]
pub enum State {
    Up(Connection),
    Down { exit: Exit, why: String },
}

/// A connection, told apart from those before it.
#[derive(Clone)]
pub struct Connection {
    pub client: Arc<Client>,
    generation: u64,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Loss {
    generation: u64,
    exit: Exit,
    why: String,
}

/// A handle on the connection; everybody who asks has one.
#[derive(Debug, Clone)]
pub struct Link {
    state: watch::Receiver<State>,
    /// Holds at most one for each who asks and each connection.
    losses: mpsc::UnboundedSender<Loss>,
}

impl Link {
    /// Keeps `client` until it is lost, and then whatever the endpoints of `global` give. Ends
    /// when nobody holds the link any more.
    pub fn keep(client: Client, global: Global) -> Self {
        let first = Connection {
            client: Arc::new(client),
            generation: 0,
        };
        let (states, state) = watch::channel(State::Up(first));
        let (losses, reported) = mpsc::unbounded_channel();
        tokio::spawn(mend(global, states, reported));
        Self { state, losses }
    }

    pub fn state(&mut self) -> State {
        self.state.borrow_and_update().clone()
    }

    /// Returns when the state is another than [`Link::state`] last gave.
    pub async fn changed(&mut self) {
        // The other end lives as long as the handles do.
        let _ = self.state.changed().await;
    }

    /// Tells that a connection does not work any more.
    pub fn lost(&self, connection: &Connection, failure: &Failure) {
        let loss = Loss {
            generation: connection.generation,
            exit: failure.exit,
            why: failure.message.clone(),
        };
        let _ = self.losses.send(loss);
    }
}

async fn mend(
    global: Global,
    states: watch::Sender<State>,
    mut reported: mpsc::UnboundedReceiver<Loss>,
) {
    let mut generation = 0;
    while let Some(loss) = reported.recv().await {
        // Everybody reports the same loss, some of them late.
        if loss.generation != generation {
            continue;
        }
        states.send_replace(State::Down {
            exit: loss.exit,
            why: loss.why,
        });
        generation += 1;
        let mut backoff = Backoff::default();
        let client = loop {
            match Client::connect_telling(&global, |_| ()).await {
                Ok(client) => break client,
                Err(failure) => {
                    states.send_replace(State::Down {
                        exit: failure.exit,
                        why: failure.message,
                    });
                }
            }
            let nobody_cares = states.closed();
            if tokio::time::timeout(backoff.next(), nobody_cares)
                .await
                .is_ok()
            {
                return;
            }
        };
        states.send_replace(State::Up(Connection {
            client: Arc::new(client),
            generation,
        }));
    }
}

/// How long to wait before trying again: twice as long each time, up to a bound.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            next: Duration::from_millis(250),
        }
    }
}

impl Backoff {
    const LONGEST: Duration = Duration::from_secs(5);

    pub fn next(&mut self) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(Self::LONGEST);
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_five_seconds() {
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..7).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 5000, 5000]);
    }
}
