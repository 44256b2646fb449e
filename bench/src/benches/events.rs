//! How many events a second reach 100 subscribers that each want all of them: from the event
//! store, which writes every event to its file first, and from a channel that only has memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use mainstay_journal::{Delivery, EventRetention, EventStore, StartAt};
use tempfile::TempDir;
use tokio::sync::broadcast;
use tokio::task::{JoinSet, spawn_blocking};

use super::Setup;
use crate::report::Report;
use crate::stats::median;

const SUBSCRIBERS: usize = 100;
const KIND: &str = "machine.ServiceStateEvent";
const PAYLOAD: [u8; 200] = [7; 200];
/// How many a subscriber of the API is given at once.
const BATCH: usize = 256;

/// How long publishing took, and how long until everybody had everything.
struct Took {
    published: Duration,
    delivered: Duration,
}

#[derive(Default)]
struct Rates {
    published: Vec<f64>,
    delivered: Vec<f64>,
}

pub async fn run(setup: &Setup) -> Result<Report> {
    let (rounds, events) = setup.pick((5, 20_000), (1, 2_000));
    let (mut store, mut channel) = (Rates::default(), Rates::default());
    for _ in 0..rounds {
        store.add(events, &by_store(events).await?);
        channel.add(events, &by_channel(events).await?);
    }
    let mut report = Report::new(
        "events",
        format!(
            "{events} events of {} bytes to {SUBSCRIBERS} subscribers; median of {rounds} rounds",
            PAYLOAD.len()
        ),
    );
    let store = store.show(&mut report, "event store, on disk");
    let channel = channel.show(&mut report, "broadcast channel, in memory");
    report.ratio("deliveries/s against the channel", store / channel, None);
    Ok(report)
}

impl Rates {
    fn add(&mut self, events: usize, took: &Took) {
        let rate = |count: usize, time: Duration| count as f64 / time.as_secs_f64();
        self.published.push(rate(events, took.published));
        self.delivered
            .push(rate(events * SUBSCRIBERS, took.delivered));
    }

    /// Gives the deliveries a second.
    fn show(self, report: &mut Report, subject: &str) -> f64 {
        report.figure(subject, "published/s", median(self.published));
        let delivered = median(self.delivered);
        report.figure(subject, "deliveries/s", delivered);
        delivered
    }
}

async fn by_store(events: usize) -> Result<Took> {
    let dir = TempDir::with_prefix("mainstay-bench-")?;
    let store = EventStore::open(dir.path(), EventRetention::default())?;
    let mut subscribers = JoinSet::new();
    for _ in 0..SUBSCRIBERS {
        let mut subscription = store.subscribe(StartAt::Now)?;
        subscribers.spawn(async move {
            let mut seen = 0;
            while seen < events {
                for delivery in subscription.next_batch(BATCH).await? {
                    let is_event = matches!(delivery, Delivery::Event(_));
                    ensure!(is_event, "the store lost events of a subscriber");
                    seen += 1;
                }
            }
            Ok(())
        });
    }
    let publish = move || {
        for _ in 0..events {
            store.publish(KIND, &PAYLOAD)?;
        }
        Ok(())
    };
    time(publish, subscribers).await
}

async fn by_channel(events: usize) -> Result<Took> {
    let (sender, _) = broadcast::channel::<Arc<[u8]>>(events);
    let mut subscribers = JoinSet::new();
    for _ in 0..SUBSCRIBERS {
        let mut subscription = sender.subscribe();
        subscribers.spawn(async move {
            for _ in 0..events {
                subscription.recv().await?;
            }
            Ok(())
        });
    }
    let publish = move || {
        for _ in 0..events {
            sender.send(Arc::from(PAYLOAD))?;
        }
        Ok(())
    };
    time(publish, subscribers).await
}

async fn time(
    publish: impl FnOnce() -> Result<()> + Send + 'static,
    mut subscribers: JoinSet<Result<()>>,
) -> Result<Took> {
    let began = Instant::now();
    let publishing = spawn_blocking(move || publish().map(|()| began.elapsed()));
    while let Some(ended) = subscribers.join_next().await {
        ended??;
    }
    let delivered = began.elapsed();
    Ok(Took {
        published: publishing.await??,
        delivered,
    })
}
