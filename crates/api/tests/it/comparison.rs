//! Test of the comparison itself: one change to the descriptors is reported as exactly that change.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto,
};

use crate::descriptors::{compiled, outline};
use crate::expectations::{additions, contract_with};
use crate::outline::differences;

#[test]
fn a_renamed_field_is_reported() {
    let reported = after(|set| {
        let field = field(set, "os/os.proto", "Stat", 4);
        field.name = Some("usage".into());
        field.json_name = Some("usage".into());
    });
    assert_eq!(
        reported,
        ["field 4 of os.Stat should be \"memory_usage uint64\" and is \"usage uint64\""]
    );
}

#[test]
fn a_renumbered_field_is_reported_at_both_numbers() {
    let reported = after(|set| field(set, "os/os.proto", "Stat", 4).number = Some(3));
    assert_eq!(
        reported,
        [
            "field 3 of os.Stat is not listed in contract.json or additions.json: \
             \"memory_usage uint64\"",
            "field 4 of os.Stat is missing: \"memory_usage uint64\"",
        ]
    );
}

#[test]
fn a_zigzag_field_turned_plain_is_reported() {
    let reported = after(|set| {
        field(set, "v1alpha/api.proto", "Pod", 2).r#type = Some(Type::Int32.into());
    });
    assert_eq!(
        reported,
        ["field 2 of v1alpha.Pod should be \"pid sint32\" and is \"pid int32\""]
    );
}

#[test]
fn a_field_of_another_message_type_is_reported() {
    let reported = after(|set| {
        field(set, "services/auth/auth.proto", "LoginResponse", 2).type_name =
            Some(".google.protobuf.Timestamp".into());
    });
    assert_eq!(
        reported,
        ["field 2 of services.auth.LoginResponse should be \
          \"expires resources.timestamp.Timestamp\" and is \
          \"expires google.protobuf.Timestamp\""]
    );
}

#[test]
fn a_field_no_longer_repeated_is_reported() {
    let reported = after(|set| {
        field(set, "os/os.proto", "Stats", 2).label = Some(Label::Optional.into());
    });
    assert_eq!(
        reported,
        ["field 2 of os.Stats should be \"stats os.Stat*\" and is \"stats os.Stat\""]
    );
}

#[test]
fn a_field_made_optional_is_reported() {
    let reported = after(|set| {
        field(set, "runtime/runtime.proto", "Cell", 2).proto3_optional = Some(true);
    });
    assert_eq!(
        reported,
        ["field 2 of runtime.Cell should be \"cpu_shares uint64\" and is \"cpu_shares uint64?\""]
    );
}

#[test]
fn a_field_with_another_json_name_is_reported() {
    let reported =
        after(|set| field(set, "v1alpha/api.proto", "KeyValue", 1).json_name = Some("key".into()));
    assert_eq!(
        reported,
        [
            "field 1 of v1alpha.KeyValue should be \"Key string\" and is \
          \"Key string named key in JSON\""
        ]
    );
}

#[test]
fn an_added_field_is_reported() {
    let reported = after(|set| {
        let extra = FieldDescriptorProto {
            name: Some("zone".into()),
            json_name: Some("zone".into()),
            number: Some(4),
            r#type: Some(Type::String.into()),
            ..Default::default()
        };
        message(set, "common/common.proto", "Metadata")
            .field
            .push(extra);
    });
    assert_eq!(
        reported,
        [
            "field 4 of common.Metadata is not listed in contract.json or additions.json: \
          \"zone string\""
        ]
    );
}

#[test]
fn a_dropped_addition_is_reported() {
    let reported = after(|set| {
        message(set, "machine/machine.proto", "EventsRequest")
            .field
            .retain(|field| field.number() != 100);
    });
    assert_eq!(
        reported,
        ["field 100 of machine.EventsRequest is missing: \"until_now bool\""]
    );
}

#[test]
fn a_dropped_enum_value_is_reported() {
    let reported = after(|set| {
        enumeration(set, "v1alpha/api.proto", "PodState")
            .value
            .pop();
    });
    assert_eq!(
        reported,
        ["value POD_STATE_GARBAGE of v1alpha.PodState is missing: \"8\""]
    );
}

#[test]
fn a_renumbered_value_of_a_nested_enum_is_reported() {
    let reported = after(|set| {
        message(set, "machine/machine.proto", "PhaseEvent").enum_type[0].value[1].number = Some(2);
    });
    assert_eq!(
        reported,
        ["value STOP of machine.PhaseEvent.Action should be \"1\" and is \"2\""]
    );
}

#[test]
fn a_reply_that_no_longer_streams_is_reported() {
    let reported = after(|set| {
        method(set, "v1alpha/api.proto", "PublicAPI", "GetLogs").server_streaming = Some(false);
    });
    assert_eq!(
        reported,
        ["rpc GetLogs of v1alpha.PublicAPI should be \
          \"v1alpha.GetLogsRequest -> stream v1alpha.GetLogsResponse\" and is \
          \"v1alpha.GetLogsRequest -> v1alpha.GetLogsResponse\""]
    );
}

#[test]
fn a_request_that_streams_is_reported() {
    let reported = after(|set| {
        method(set, "os/os.proto", "OSService", "Stats").client_streaming = Some(true);
    });
    assert_eq!(
        reported,
        [
            "rpc Stats of os.OSService should be \"os.StatsRequest -> os.StatsResponse\" and is \
          \"stream os.StatsRequest -> os.StatsResponse\""
        ]
    );
}

#[test]
fn a_dropped_empty_service_is_reported() {
    let reported = after(|set| {
        file(set, "runtime/runtime.proto")
            .service
            .retain(|service| service.name() != "Spawn");
    });
    assert_eq!(reported, ["service runtime.Spawn is missing: \"\""]);
}

#[test]
fn a_dropped_package_is_reported() {
    let reported = after(|set| set.file.retain(|file| file.package() != "schedule"));
    let package = "package schedule is missing: \"\"".to_owned();
    assert!(reported.contains(&package), "{reported:?}");
}

#[test]
fn an_added_nested_message_is_reported() {
    let reported = after(|set| {
        let nested = DescriptorProto {
            name: Some("Inner".into()),
            ..Default::default()
        };
        message(set, "os/os.proto", "Memory")
            .nested_type
            .push(nested);
    });
    assert_eq!(
        reported,
        ["message os.Memory.Inner is not listed in contract.json or additions.json: \"\""]
    );
}

/// Returns the differences reported after one change to the compiled descriptors.
fn after(change: impl FnOnce(&mut FileDescriptorSet)) -> Vec<String> {
    let mut changed = compiled();
    change(&mut changed);
    differences(&contract_with(additions()), &outline(&changed))
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn file<'a>(set: &'a mut FileDescriptorSet, path: &str) -> &'a mut FileDescriptorProto {
    set.file
        .iter_mut()
        .find(|file| file.name() == path)
        .unwrap()
}

fn message<'a>(set: &'a mut FileDescriptorSet, path: &str, name: &str) -> &'a mut DescriptorProto {
    file(set, path)
        .message_type
        .iter_mut()
        .find(|message| message.name() == name)
        .unwrap()
}

fn field<'a>(
    set: &'a mut FileDescriptorSet,
    path: &str,
    of: &str,
    number: i32,
) -> &'a mut FieldDescriptorProto {
    message(set, path, of)
        .field
        .iter_mut()
        .find(|field| field.number() == number)
        .unwrap()
}

fn enumeration<'a>(
    set: &'a mut FileDescriptorSet,
    path: &str,
    name: &str,
) -> &'a mut EnumDescriptorProto {
    file(set, path)
        .enum_type
        .iter_mut()
        .find(|found| found.name() == name)
        .unwrap()
}

fn service<'a>(
    set: &'a mut FileDescriptorSet,
    path: &str,
    name: &str,
) -> &'a mut ServiceDescriptorProto {
    file(set, path)
        .service
        .iter_mut()
        .find(|service| service.name() == name)
        .unwrap()
}

fn method<'a>(
    set: &'a mut FileDescriptorSet,
    path: &str,
    of: &str,
    name: &str,
) -> &'a mut MethodDescriptorProto {
    service(set, path, of)
        .method
        .iter_mut()
        .find(|method| method.name() == name)
        .unwrap()
}
