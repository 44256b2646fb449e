//! The one connection that all calls share, re-established whenever it is lost.

use std::sync::Arc;
use std::time::Duration;

use mainstay_client::{Client, Error, Options};
use tokio::sync::{mpsc, watch};

/// State of the shared connection.
#[derive(Debug, Clone)]
pub enum State {
    Up(Connection),
    Down(Arc<Error>),
}

/// One connection, with a generation that distinguishes it from earlier ones.
#[derive(Debug, Clone)]
pub struct Connection {
    pub client: Arc<Client>,
    generation: u64,
}

#[derive(Debug)]
struct Loss {
    generation: u64,
    error: Arc<Error>,
}

/// A handle on the shared connection.
#[derive(Debug, Clone)]
pub struct Link {
    state: watch::Receiver<State>,
    /// Holds at most one loss per handle and connection.
    losses: mpsc::UnboundedSender<Loss>,
}

impl Link {
    /// Shares `client` and reconnects with `options` when it is lost. Reconnecting ends when the
    /// last handle is dropped.
    pub fn new(client: Client, options: Options) -> Self {
        let first = Connection {
            client: Arc::new(client),
            generation: 0,
        };
        let (states, state) = watch::channel(State::Up(first));
        let (losses, reported) = mpsc::unbounded_channel();
        tokio::spawn(reconnect(options, states, reported));
        Self { state, losses }
    }

    pub fn state(&mut self) -> State {
        self.state.borrow_and_update().clone()
    }

    /// Returns when the state differs from the one [`Link::state`] last returned.
    pub async fn changed(&mut self) {
        // The sender lives as long as the handles do.
        let _ = self.state.changed().await;
    }

    /// Reports that a connection is lost.
    pub fn report_lost(&self, connection: &Connection, error: Arc<Error>) {
        let generation = connection.generation;
        let _ = self.losses.send(Loss { generation, error });
    }
}

async fn reconnect(
    options: Options,
    states: watch::Sender<State>,
    mut reported: mpsc::UnboundedReceiver<Loss>,
) {
    let mut generation = 0;
    while let Some(loss) = reported.recv().await {
        // Every handle reports the same loss, some of them late.
        if loss.generation != generation {
            continue;
        }
        states.send_replace(State::Down(loss.error));
        generation += 1;
        let mut backoff = Backoff::default();
        let client = loop {
            match Client::connect(&options, |_| ()).await {
                Ok(client) => break client,
                Err(error) => states.send_replace(State::Down(Arc::new(error))),
            };
            let dropped = states.closed();
            if tokio::time::timeout(backoff.next(), dropped).await.is_ok() {
                return;
            }
        };
        states.send_replace(State::Up(Connection {
            client: Arc::new(client),
            generation,
        }));
    }
}

/// Exponential backoff from 250 ms to 5 s.
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
    const MAX: Duration = Duration::from_secs(5);

    pub fn next(&mut self) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(Self::MAX);
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_five_seconds() {
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..7).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 5000, 5000]);
    }
}
