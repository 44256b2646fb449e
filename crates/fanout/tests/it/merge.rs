//! Concatenated tagged bytes decode to the merged messages.

use mainstay_api::common::{Data, Metadata};
use mainstay_api::google::rpc;
use mainstay_api::os::{MemInfo, Memory, MemoryResponse, Process, ProcessInfo, ProcessesResponse};
use mainstay_fanout::{NodeTag, TagError};
use proptest::prelude::*;
use prost::Message;
use tonic::Status;

fn metadata() -> impl Strategy<Value = Option<Metadata>> {
    let filled = (
        ".{0,12}",
        ".{0,12}",
        proptest::option::of((0..17i32, ".{0,8}")),
    );
    proptest::option::of(filled.prop_map(|(hostname, error, status)| Metadata {
        hostname,
        error,
        status: status.map(|(code, message)| rpc::Status {
            code,
            message,
            details: Vec::new(),
        }),
    }))
}

prop_compose! {
    fn process()(pid in any::<i32>(), command in ".{0,40}", cpu_time in -1e9..1e9f64,
                 resident_memory in any::<u64>(), state in "[A-Z]?") -> ProcessInfo {
        ProcessInfo { pid, command, cpu_time, resident_memory, state, ..ProcessInfo::default() }
    }
}

fn processes() -> impl Strategy<Value = ProcessesResponse> {
    let node = (metadata(), proptest::collection::vec(process(), 0..4)).prop_map(
        |(metadata, processes)| Process {
            metadata,
            processes,
        },
    );
    proptest::collection::vec(node, 0..4).prop_map(|messages| ProcessesResponse { messages })
}

fn memory() -> impl Strategy<Value = MemoryResponse> {
    let node =
        (metadata(), proptest::option::of(any::<u64>())).prop_map(|(metadata, total)| Memory {
            metadata,
            meminfo: total.map(|memtotal| MemInfo {
                memtotal,
                ..MemInfo::default()
            }),
        });
    proptest::collection::vec(node, 0..4).prop_map(|messages| MemoryResponse { messages })
}

fn name_all<'a>(name: &str, metadata: impl Iterator<Item = &'a mut Option<Metadata>>) {
    for metadata in metadata {
        metadata.get_or_insert_with(Metadata::default).hostname = name.to_owned();
    }
}

/// The names of gRPC's codes, as clients in Go print them.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

proptest! {
    #[test]
    fn replies_of_several_nodes_become_one(replies in proptest::collection::vec(("[a-z0-9.:-]{1,300}", processes()), 0..5)) {
        let mut merged = Vec::new();
        let mut expected = ProcessesResponse::default();
        for (name, mut reply) in replies {
            merged.extend(NodeTag::new(&name).tag_reply(&reply.encode_to_vec(), usize::MAX).unwrap());
            if reply.messages.is_empty() {
                reply.messages.push(Process::default());
            }
            name_all(&name, reply.messages.iter_mut().map(|message| &mut message.metadata));
            expected.messages.extend(reply.messages);
        }
        prop_assert_eq!(ProcessesResponse::decode(merged.as_slice()).unwrap(), expected);
    }

    #[test]
    fn any_envelope_can_be_tagged(name in ".{1,40}", mut reply in memory()) {
        let tagged = NodeTag::new(&name).tag_reply(&reply.encode_to_vec(), usize::MAX).unwrap();
        if reply.messages.is_empty() {
            reply.messages.push(Memory::default());
        }
        name_all(&name, reply.messages.iter_mut().map(|message| &mut message.metadata));
        prop_assert_eq!(MemoryResponse::decode(tagged.as_slice()).unwrap(), reply);
    }

    #[test]
    fn a_streamed_message_is_tagged_by_appending(name in ".{1,300}", metadata in metadata(), bytes in any::<Vec<u8>>()) {
        let mut data = Data { metadata, bytes: bytes.into() };
        let mut tagged = data.encode_to_vec();
        tagged.extend_from_slice(NodeTag::new(&name).bytes());
        name_all(&name, std::iter::once(&mut data.metadata));
        prop_assert_eq!(Data::decode(tagged.as_slice()).unwrap(), data);
    }

    #[test]
    fn a_failure_holds_only_node_and_status(name in ".{1,300}", code in 1..17i32, text in ".{1,300}") {
        let status = Status::new(tonic::Code::from_i32(code), &text);
        let tag = NodeTag::new(&name);
        let metadata = Metadata {
            hostname: name,
            error: format!("rpc error: code = {} desc = {text}", CODES[usize::try_from(code).unwrap()]),
            status: Some(rpc::Status { code, message: text, details: Vec::new() }),
        };
        let data = Data { metadata: Some(metadata.clone()), ..Data::default() };
        prop_assert_eq!(Data::decode(tag.failure(&status).as_slice()).unwrap(), data);
        let reply = MemoryResponse { messages: vec![Memory { metadata: Some(metadata), meminfo: None }] };
        prop_assert_eq!(MemoryResponse::decode(tag.failed_reply(&status).as_slice()).unwrap(), reply);
    }

    #[test]
    fn unknown_fields_are_kept(name in "[a-z]{1,9}", reply in memory(), unknown in any::<Vec<u8>>()) {
        // Field 900 of the reply, which no contract defines.
        let mut bytes = vec![0xa2, 0x38];
        prost::encoding::encode_varint(unknown.len() as u64, &mut bytes);
        bytes.extend_from_slice(&unknown);
        let field = bytes.clone();
        bytes.extend(reply.encode_to_vec());
        let tagged = NodeTag::new(&name).tag_reply(&bytes, usize::MAX).unwrap();
        prop_assert!(tagged.starts_with(&field));
    }

    #[test]
    fn no_bytes_cause_a_panic_or_exceed_the_maximum(bytes in any::<Vec<u8>>(), most in 0..200usize) {
        let tag = NodeTag::new("node");
        if let Ok(tagged) = tag.tag_reply(&bytes, most) {
            prop_assert!(tagged.len() <= most + tag.bytes().len() + 2);
        }
    }
}

#[test]
fn a_reply_that_would_grow_too_large_is_refused_before_it_is_built() {
    // Two bytes each, and each would get the tag.
    let many_empty = [0x0a, 0x00].repeat(1000);
    let tag = NodeTag::new(&"n".repeat(200));
    assert_eq!(tag.tag_reply(&many_empty, 100_000), Err(TagError::TooLarge));
    assert!(tag.tag_reply(&many_empty, 1_000_000).is_ok());
}
