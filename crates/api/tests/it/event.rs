//! Events are packed under the type URL their readers expect and unpacked unchanged.

use mainstay_api::event::{UnpackError, kind, pack, unpack};
use mainstay_api::machine::{PhaseEvent, SequenceEvent, ServiceStateEvent, TaskEvent};
use mainstay_api::machine::{phase_event, service_state_event};
use prost_types::Any;

#[test]
fn every_kind_has_the_type_url_clients_know() {
    let packed = [
        pack(&SequenceEvent::default()),
        pack(&PhaseEvent::default()),
        pack(&TaskEvent::default()),
        pack(&ServiceStateEvent::default()),
    ];
    assert_eq!(
        packed.map(|event| event.type_url),
        [
            "talos/runtime/machine.SequenceEvent",
            "talos/runtime/machine.PhaseEvent",
            "talos/runtime/machine.TaskEvent",
            "talos/runtime/machine.ServiceStateEvent",
        ]
    );
}

#[test]
fn an_event_is_unpacked_unchanged() {
    let event = ServiceStateEvent {
        service: "etcd".into(),
        action: service_state_event::Action::Starting.into(),
        message: "has what it waited for".into(),
        health: None,
    };
    let packed = pack(&event);
    assert_eq!(kind(&packed), Some("machine.ServiceStateEvent"));
    assert_eq!(unpack::<ServiceStateEvent>(&packed).unwrap(), event);
}

#[test]
fn an_event_is_not_read_as_another_kind() {
    // The two messages have the same fields, so only the type URL tells them apart.
    let packed = pack(&PhaseEvent {
        phase: "umount".into(),
        action: phase_event::Action::Stop.into(),
    });
    let error = unpack::<TaskEvent>(&packed).unwrap_err();
    assert!(matches!(error, UnpackError::OtherKind { .. }));
    assert_eq!(
        error.to_string(),
        "event of type \"talos/runtime/machine.PhaseEvent\" is not a machine.TaskEvent; \
         check its kind before unpacking it"
    );
}

#[test]
fn a_corrupt_event_is_an_error_that_names_its_kind() {
    let mut packed = pack(&PhaseEvent {
        phase: "umount".into(),
        action: 0,
    });
    packed.value.pop();
    let error = unpack::<PhaseEvent>(&packed).unwrap_err();
    assert!(matches!(&error, UnpackError::Damaged { kind, .. } if kind == "machine.PhaseEvent"));
}

#[test]
fn an_any_with_another_type_url_has_no_kind() {
    for type_url in [
        "",
        "talos/runtime/",
        "type.googleapis.com/machine.PhaseEvent",
    ] {
        let foreign = Any {
            type_url: type_url.into(),
            value: Vec::new(),
        };
        assert_eq!(kind(&foreign), None, "{type_url:?}");
        assert!(unpack::<PhaseEvent>(&foreign).is_err(), "{type_url:?}");
    }
}
