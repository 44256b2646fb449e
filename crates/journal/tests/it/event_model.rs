//! Random use against a model: the list of everything ever published.

use std::sync::Arc;
use std::time::Duration;

use mainstay_journal::{
    Delivery, Event, EventId, EventRetention, EventStore, StartAt, Subscription,
};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::support::block_on;

#[derive(Clone, Debug)]
enum Step {
    Publish { payload: usize, times: usize },
    Subscribe(Begin),
    Read { reader: Index, max: usize },
    Retain { min_events: u64, max_bytes: u64 },
    Reopen,
}

#[derive(Clone, Debug)]
enum Begin {
    Now,
    All,
    Last(u64),
    After(Index),
    Since(Index),
}

fn step() -> impl Strategy<Value = Step> {
    let begin = prop_oneof![
        Just(Begin::Now),
        Just(Begin::All),
        (0..200_u64).prop_map(Begin::Last),
        any::<Index>().prop_map(Begin::After),
        any::<Index>().prop_map(Begin::Since),
    ];
    prop_oneof![
        6 => (0..3000_usize, 1..20_usize).prop_map(|(payload, times)| Step::Publish { payload, times }),
        2 => begin.prop_map(Step::Subscribe),
        6 => (any::<Index>(), 1..60_usize).prop_map(|(reader, max)| Step::Read { reader, max }),
        1 => (0..100_u64, 1..200_000_u64)
            .prop_map(|(min_events, max_bytes)| Step::Retain { min_events, max_bytes }),
        1 => Just(Step::Reopen),
    ]
}

struct Reader {
    subscription: Subscription,
    next: Next,
    last: Option<EventId>,
}

/// The next expected delivery of a reader.
#[derive(Clone, Copy)]
enum Next {
    Exactly(u64),
    /// This one, unless events were missed while looking for it.
    First(u64),
}

struct World {
    store: Option<EventStore>,
    directory: tempfile::TempDir,
    retention: EventRetention,
    /// Event `n` is at `n - 1`.
    published: Vec<Arc<Event>>,
    /// The newest event any retention so far allowed to be dropped.
    droppable: u64,
    readers: Vec<Reader>,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let retention = EventRetention {
            min_events: 50,
            min_age: Duration::ZERO,
            max_bytes: 100_000,
        };
        let store = Some(EventStore::open(directory.path(), retention).unwrap());
        let (published, readers) = (Vec::new(), Vec::new());
        Self {
            store,
            directory,
            retention,
            published,
            droppable: 0,
            readers,
        }
    }

    fn store(&self) -> &EventStore {
        self.store.as_ref().unwrap()
    }

    fn head(&self) -> u64 {
        self.published.len() as u64
    }

    fn record_droppable(&mut self) {
        let allowed = self.head().saturating_sub(self.retention.min_events);
        self.droppable = self.droppable.max(allowed);
    }

    async fn apply(&mut self, step: Step) {
        match step {
            Step::Publish { payload, times } => {
                for _ in 0..times {
                    let event = self.store().publish("model", &vec![9; payload]).unwrap();
                    assert_eq!(event.id.seq, self.head() + 1);
                    self.published.push(event);
                    self.record_droppable();
                }
            }
            Step::Subscribe(begin) => self.subscribe(&begin).await,
            Step::Read { reader, max } => {
                if !self.readers.is_empty() {
                    let at = reader.index(self.readers.len());
                    self.read(at, max).await;
                }
            }
            Step::Retain {
                min_events,
                max_bytes,
            } => {
                self.retention = EventRetention {
                    min_events,
                    max_bytes,
                    ..self.retention
                };
                self.record_droppable();
                self.store().set_retention(self.retention);
            }
            Step::Reopen => self.reopen(),
        }
    }

    async fn subscribe(&mut self, begin: &Begin) {
        let head = self.head();
        let mut all = self.store().subscribe(StartAt::All).unwrap();
        let oldest = match all.next_kept(1).await.unwrap().as_deref() {
            Some([Delivery::Event(event)]) => event.id.seq,
            None => head + 1,
            other => panic!("{other:?}"),
        };
        let pick = |index: &Index| self.published.get(index.index(self.published.len().max(1)));
        let (start, next) = match begin {
            Begin::Now => (StartAt::Now, Next::Exactly(head + 1)),
            Begin::All => (StartAt::All, Next::Exactly(oldest)),
            Begin::Last(count) => {
                let first = (head + 1).saturating_sub(*count).max(oldest);
                (StartAt::Last(*count), Next::Exactly(first))
            }
            Begin::After(index) => match pick(index) {
                Some(event) => (StartAt::After(event.id), Next::Exactly(event.id.seq + 1)),
                None => return,
            },
            Begin::Since(index) => match pick(index) {
                Some(event) => {
                    let since = event.id.time;
                    let recent =
                        |event: &&Arc<Event>| event.id.seq >= oldest && event.id.time >= since;
                    let first = self
                        .published
                        .iter()
                        .find(recent)
                        .map_or(head + 1, |event| event.id.seq);
                    (StartAt::Since(since), Next::First(first))
                }
                None => return,
            },
        };
        let subscription = self.store().subscribe(start).unwrap();
        self.readers.push(Reader {
            subscription,
            next,
            last: None,
        });
    }

    async fn read(&mut self, at: usize, max: usize) {
        let head = self.head();
        let reader = &mut self.readers[at];
        let (Next::Exactly(next) | Next::First(next)) = reader.next;
        // Nothing waits for future events.
        if next > head {
            return;
        }
        let batch = reader.subscription.next_batch(max).await.unwrap();
        let events = batch
            .iter()
            .filter(|delivery| matches!(delivery, Delivery::Event(_)))
            .count();
        assert!(!batch.is_empty() && events <= max);
        for delivery in batch {
            match (delivery, reader.next) {
                (Delivery::Missed { count }, Next::Exactly(next)) => {
                    assert!(count > 0);
                    assert!(
                        next + count - 1 <= self.droppable,
                        "{next} + {count} had to be kept"
                    );
                    reader.next = Next::Exactly(next + count);
                }
                (Delivery::Missed { .. }, Next::First(next)) => {
                    assert!(self.droppable > 0, "{next} had to be kept");
                    // The next event says how far it went.
                    reader.next = Next::First(0);
                }
                (Delivery::Event(event), Next::Exactly(next) | Next::First(next)) => {
                    if !matches!(reader.next, Next::First(0)) {
                        assert_eq!(event.id.seq, next, "lost or doubled");
                    }
                    assert_eq!(
                        event,
                        self.published[usize::try_from(event.id.seq).unwrap() - 1]
                    );
                    reader.next = Next::Exactly(event.id.seq + 1);
                    reader.last = Some(event.id);
                }
            }
        }
    }

    /// Readers that have seen anything go on after it; the others are gone.
    fn reopen(&mut self) {
        let seen: Vec<_> = self
            .readers
            .drain(..)
            .filter_map(|reader| reader.last)
            .collect();
        self.store = None;
        let store = EventStore::open(self.directory.path(), self.retention).unwrap();
        assert_eq!(store.last(), self.published.last().map(|event| event.id));
        for last in seen {
            let subscription = store.subscribe(StartAt::After(last)).unwrap();
            self.readers.push(Reader {
                subscription,
                next: Next::Exactly(last.seq + 1),
                last: Some(last),
            });
        }
        self.store = Some(store);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn no_event_is_lost_duplicated_or_reordered(steps in prop::collection::vec(step(), 1..60)) {
        block_on(async {
            let mut world = World::new();
            for step in steps {
                world.apply(step).await;
            }
            let last = world.store().publish("model", b"last").unwrap();
            world.published.push(last);
            world.record_droppable();
            let head = world.head();
            for at in 0..world.readers.len() {
                while !matches!(world.readers[at].next, Next::Exactly(next) if next > head) {
                    world.read(at, 50).await;
                }
            }
        });
    }
}
