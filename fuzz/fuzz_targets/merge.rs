//! Answers of other nodes: one that passes the contract's check is accepted by a decoder, tagged or
//! not, and every message of a tagged one has the node's name.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use mainstay_api::common::{Data, Metadata};
use mainstay_api::machine::{Event, FileInfo, SystemStatResponse};
use mainstay_api::os::ProcessesResponse;
use mainstay_api::{FromNode, Reply};
use mainstay_fanout::{Contract, NodeTag};
use prost::Message;

static CONTRACT: LazyLock<Contract> =
    LazyLock::new(|| Contract::from_descriptors(mainstay_api::FILE_DESCRIPTOR_SET));

const NAME: &str = "node-1:50000";

fuzz_target!(|data: &[u8]| {
    reply::<ProcessesResponse>("/os.OSService/Processes", data);
    reply::<SystemStatResponse>("/machine.MachineService/SystemStat", data);
    streamed::<Data>("/machine.MachineService/Read", data, |data| data.metadata);
    streamed::<FileInfo>("/machine.MachineService/List", data, |info| info.metadata);
    streamed::<Event>("/machine.MachineService/Events", data, |event| {
        event.metadata
    });
});

fn passes(path: &str, data: &[u8]) -> bool {
    CONTRACT
        .method(path)
        .is_some_and(|method| CONTRACT.check(method, data).is_ok())
}

fn reply<R: Message + Default + Reply>(path: &str, data: &[u8]) {
    let tagged = NodeTag::new(NAME).tag_reply(data, 1 << 20);
    if !passes(path, data) {
        return;
    }
    let before = R::decode(data).unwrap().into_messages().len();
    let after = R::decode(tagged.unwrap().as_slice())
        .unwrap()
        .into_messages();
    assert_eq!(after.len(), before.max(1));
    for message in after {
        assert_eq!(message.metadata().unwrap().hostname, NAME);
    }
}

fn streamed<M: Message + Default>(
    path: &str,
    data: &[u8],
    metadata: impl Fn(M) -> Option<Metadata>,
) {
    if !passes(path, data) {
        return;
    }
    M::decode(data).unwrap();
    let tagged = [data, NodeTag::new(NAME).bytes()].concat();
    let message = M::decode(tagged.as_slice()).unwrap();
    assert_eq!(metadata(message).unwrap().hostname, NAME);
}
