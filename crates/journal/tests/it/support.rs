//! Helpers shared by the tests.

use std::future::Future;
use std::time::Duration;

use mainstay_journal::{Delivery, EventRetention, EventStore, StartAt};

/// A timeout far beyond the duration of any test, so that a hanging one fails.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(TEST_TIMEOUT, future)
            .await
            .expect("timed out")
    })
}

/// Keeps everything, in segments of 4 KiB.
pub(crate) fn small_segments() -> EventRetention {
    EventRetention {
        min_events: u64::MAX,
        max_bytes: 1,
        ..EventRetention::default()
    }
}

/// Everything kept from `start` on.
pub(crate) fn kept(store: &EventStore, start: StartAt) -> Vec<Delivery> {
    block_on(read_kept(store, start))
}

pub(crate) async fn read_kept(store: &EventStore, start: StartAt) -> Vec<Delivery> {
    let mut subscription = store.subscribe(start).unwrap();
    let mut all = Vec::new();
    while let Some(batch) = subscription.next_kept(7).await.unwrap() {
        assert!(!batch.is_empty());
        all.extend(batch);
    }
    all
}

pub(crate) fn seqs(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries
        .iter()
        .filter_map(|delivery| match delivery {
            Delivery::Event(event) => Some(event.id.seq),
            Delivery::Missed { .. } => None,
        })
        .collect()
}
