use tempfile::TempDir;

use super::*;
use crate::{Outcome, Stamp};

static STAMP: Stamp = Stamp::new("0.0.7", "cafe", 1);

/// The image of a binary with `marker` in it.
fn image(dir: &Path, marker: u8) -> PathBuf {
    // Keeps the stamp of the test program, whose slots need one.
    assert!(STAMP.facts().is_some());
    let binary = dir.join("binary");
    let own = fs::read(OWN_BINARY).unwrap();
    let mut bytes = own[..64].to_vec();
    bytes.resize(10_000, marker);
    let stamp = Stamp::new("2.0.0", "beef", 1);
    bytes.extend_from_slice(stamp.bytes());
    fs::write(&binary, bytes).unwrap();
    let image = dir.join(format!("image{marker}"));
    let writer = crate::ImageWriter::of(&binary).unwrap();
    writer.write(File::create(&image).unwrap(), dir).unwrap();
    image
}

const FORMATS: StateFormats = StateFormats {
    on_disk: 1,
    supported: 1,
};

fn request(staged: bool) -> Request {
    Request {
        actor_id: "actor".to_owned(),
        staged,
        deadline_seconds: 5,
    }
}

fn receive(slots: &Slots, image: &Path) -> Received {
    slots.receive(image, &[], FORMATS, false).unwrap()
}

#[test]
fn the_first_upgrade_keeps_the_running_binary_in_slot_a() {
    let dir = TempDir::new().unwrap();
    let slots = Slots::of(dir.path());
    assert!(slots.read().unwrap().is_none());
    assert!(matches!(
        slots.roll_back(FORMATS, &request(false)),
        Err(SlotsError::NoOtherSlot(_))
    ));

    let received = receive(&slots, &image(dir.path(), 1));
    slots.check(&received).unwrap();
    let record = slots.install(&received, &request(false)).unwrap();
    assert_eq!(record.current, SlotName::A);
    assert_eq!(slots.read().unwrap().as_ref(), Some(&record));
    for slot in [SlotName::A, SlotName::B] {
        slots.verify(slot, record.content(slot).unwrap()).unwrap();
    }
    assert_eq!(
        fs::read(slots.binary(SlotName::A)).unwrap(),
        fs::read(OWN_BINARY).unwrap()
    );
    assert_eq!(record.version(SlotName::B), "2.0.0");
    let trial = record.trial.unwrap();
    assert_eq!((trial.slot, trial.tries_left), (SlotName::B, 1));
}

#[test]
fn a_second_switch_is_refused_during_a_trial_but_replaces_a_staged_one() {
    let dir = TempDir::new().unwrap();
    let slots = Slots::of(dir.path());
    let first = image(dir.path(), 1);
    slots
        .install(&receive(&slots, &first), &request(true))
        .unwrap();
    let second = receive(&slots, &image(dir.path(), 2));
    let record = slots.install(&second, &request(false)).unwrap();
    slots
        .verify(SlotName::B, record.b.as_ref().unwrap())
        .unwrap();
    let error = slots
        .install(&receive(&slots, &first), &request(false))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("cannot upgrade: a trial of slot B"),
        "{error}"
    );
    let error = slots.roll_back(FORMATS, &request(false)).unwrap_err();
    assert!(error.to_string().contains("cannot rollback"), "{error}");
    slots.cancel_trial().unwrap();
    assert_eq!(slots.read().unwrap().unwrap().trial, None);
    slots.roll_back(FORMATS, &request(false)).unwrap();
}

#[test]
fn a_state_format_outside_what_both_builds_read_is_refused() {
    let dir = TempDir::new().unwrap();
    let slots = Slots::of(dir.path());
    let image = image(dir.path(), 1);
    for (on_disk, supported) in [(0, 0), (2, 2), (2, 3)] {
        let formats = StateFormats { on_disk, supported };
        let error = slots.receive(&image, &[], formats, true).unwrap_err();
        assert!(
            matches!(error, SlotsError::StateFormat { wanted: 1, .. }),
            "{error}"
        );
    }
    let formats = StateFormats {
        on_disk: 0,
        supported: 3,
    };
    slots.receive(&image, &[], formats, true).unwrap();
    assert!(slots.read().unwrap().is_none(), "nothing was changed");
}

#[test]
fn a_kept_slot_becomes_current_and_the_other_can_be_rolled_back_to() {
    let dir = TempDir::new().unwrap();
    let slots = Slots::of(dir.path());
    let received = receive(&slots, &image(dir.path(), 1));
    let mut record = slots.install(&received, &request(false)).unwrap();
    record.end_trial(Outcome::Kept, String::new());
    slots.write(&record).unwrap();
    assert_eq!(record.current, SlotName::B);
    let record = slots.roll_back(FORMATS, &request(false)).unwrap();
    assert_eq!(record.trial.unwrap().slot, SlotName::A);

    // A corrupt slot is no slot to roll back to.
    slots.cancel_trial().unwrap();
    fs::write(slots.binary(SlotName::A), "corrupt").unwrap();
    let error = slots.roll_back(FORMATS, &request(false)).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot rollback: the binary in slot A"),
        "{error}"
    );
}

#[test]
fn what_is_received_is_removed_unless_it_is_installed() {
    let dir = TempDir::new().unwrap();
    let slots = Slots::of(dir.path());
    let image = image(dir.path(), 1);
    let received = receive(&slots, &image);
    let path = received.path.clone();
    assert!(path.exists());
    drop(received);
    assert!(!path.exists());
    fs::write(&image, "garbage").unwrap();
    assert!(slots.receive(&image, &[], FORMATS, false).is_err());
    assert!(!path.exists());
}

#[test]
fn the_binary_that_runs_is_refused_without_force() {
    let dir = TempDir::new().unwrap();
    let slots = Slots::of(dir.path());
    let image = dir.path().join("own");
    let writer = crate::ImageWriter::of(Path::new(OWN_BINARY)).unwrap();
    writer
        .write(File::create(&image).unwrap(), dir.path())
        .unwrap();
    let error = slots.receive(&image, &[], FORMATS, false).unwrap_err();
    assert!(matches!(error, SlotsError::SameBinary { .. }), "{error}");
    slots.receive(&image, &[], FORMATS, true).unwrap();
}
