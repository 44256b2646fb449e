use std::path::Path;

use mainstay_journal::{EventStore, StartAt};

use crate::child::{Victim, acknowledge};
use crate::support::{kept, seqs, small_segments};

pub(crate) fn publish_forever(directory: &Path) {
    let store = EventStore::open(directory, small_segments()).unwrap();
    loop {
        let seq = store.last().map_or(0, |id| id.seq) + 1;
        // Sizes from nothing to several pages, derived from the number.
        let payload =
            vec![u8::try_from(seq % 251).unwrap(); usize::try_from(seq * 37 % 9000).unwrap()];
        let event = store.publish("test.Crash", &payload).unwrap();
        assert_eq!(event.id.seq, seq);
        acknowledge(seq);
    }
}

#[test]
fn published_events_survive_sigkill() {
    let dir = tempfile::tempdir().unwrap();
    let mut last_acknowledged = 0;
    for round in 0..12_u64 {
        let mut victim = Victim::start("publish", dir.path());
        for _ in 0..=round * 29 % 83 {
            last_acknowledged = victim.acknowledged().unwrap();
        }
        last_acknowledged = victim.kill().last().copied().unwrap_or(last_acknowledged);

        let store = EventStore::open(dir.path(), small_segments()).unwrap();
        let deliveries = kept(&store, StartAt::All);
        let seqs = seqs(&deliveries);
        assert_eq!(deliveries.len(), seqs.len(), "nothing is missing");
        let newest = *seqs.last().unwrap();
        assert!(
            newest >= last_acknowledged,
            "{newest} is before {last_acknowledged}"
        );
        assert_eq!(seqs, (1..=newest).collect::<Vec<_>>());
        for delivery in deliveries {
            let mainstay_journal::Delivery::Event(event) = delivery else {
                unreachable!()
            };
            let len = usize::try_from(event.id.seq * 37 % 9000).unwrap();
            assert_eq!(event.payload.len(), len);
            assert!(
                event
                    .payload
                    .iter()
                    .all(|byte| u64::from(*byte) == event.id.seq % 251)
            );
        }
    }
}
