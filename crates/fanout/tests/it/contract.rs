//! A message that passes the check is one the client's decoder accepts.

use mainstay_api::common::Data;
use mainstay_api::machine::{Event, FileInfo, MountsResponse, SystemStatResponse};
use mainstay_api::os::ProcessesResponse;
use mainstay_fanout::{Contract, Method};
use proptest::prelude::*;
use prost::Message;

use crate::real_contract;

thread_local! {
    static CONTRACT: Contract = real_contract();
}

/// Bytes that are valid field keys more often than random ones.
fn wire_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        any::<Vec<u8>>(),
        (
            1..16u8,
            0..6u8,
            proptest::collection::vec(any::<u8>(), 0..12)
        )
            .prop_map(|(number, kind, rest)| {
                let mut bytes = vec![number << 3 | kind];
                if kind == 2 {
                    bytes.push(u8::try_from(rest.len()).unwrap());
                }
                bytes.extend(rest);
                bytes
            }),
    ];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn nested(depth: u8) -> impl Strategy<Value = Vec<u8>> {
    (
        proptest::collection::vec(1..14u8, 0..usize::from(depth)),
        wire_like(),
    )
        .prop_map(|(numbers, inner)| {
            numbers.into_iter().fold(inner, |inner, number| {
                let mut outer = vec![number << 3 | 2];
                prost::encoding::encode_varint(inner.len() as u64, &mut outer);
                outer.extend(inner);
                outer
            })
        })
}

fn method(path: &str) -> Method {
    CONTRACT.with(|contract| contract.method(path).unwrap())
}

fn accepts<M: Message + Default>(path: &str, bytes: &[u8]) -> Result<(), TestCaseError> {
    let method = method(path);
    if CONTRACT
        .with(|contract| contract.check(method, bytes))
        .is_ok()
    {
        prop_assert!(M::decode(bytes).is_ok(), "{path} let {bytes:x?} through");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn nothing_passes_that_a_decoder_would_refuse(bytes in nested(4)) {
        accepts::<ProcessesResponse>("/os.OSService/Processes", &bytes)?;
        accepts::<MountsResponse>("/machine.MachineService/Mounts", &bytes)?;
        accepts::<SystemStatResponse>("/machine.MachineService/SystemStat", &bytes)?;
        accepts::<FileInfo>("/machine.MachineService/List", &bytes)?;
        accepts::<Data>("/machine.MachineService/Read", &bytes)?;
        accepts::<Event>("/machine.MachineService/Events", &bytes)?;
    }
}

#[test]
fn real_answers_pass_the_check() {
    let stat = SystemStatResponse {
        messages: vec![mainstay_api::machine::SystemStat {
            irq: (0..300).collect(),
            cpu: vec![mainstay_api::machine::CpuStat {
                user: 1.5,
                ..Default::default()
            }],
            ..Default::default()
        }],
    };
    let method = method("/machine.MachineService/SystemStat");
    CONTRACT.with(|contract| contract.check(method, &stat.encode_to_vec()).unwrap());
}

#[test]
fn only_answers_with_metadata_can_be_merged() {
    CONTRACT.with(|contract| {
        for (path, streams) in [
            ("/os.OSService/Processes", false),
            ("/machine.MachineService/Processes", false),
            ("/machine.MachineService/ServiceList", false),
            ("/machine.MachineService/Logs", true),
            ("/machine.MachineService/Events", true),
            ("/machine.MachineService/Copy", true),
        ] {
            assert_eq!(contract.method(path).unwrap().streams, streams, "{path}");
        }
        for path in [
            "/v1alpha.PublicAPI/ListPods",
            "/runtime.CellService/Start",
            "/stats.StatsService/GetStats",
            "/grpc.health.v1.Health/Check",
            "/machine.MachineService/Nothing",
            "",
        ] {
            assert!(contract.method(path).is_none(), "{path}");
        }
    });
}

#[test]
fn an_empty_contract_has_no_method() {
    assert!(
        Contract::from_descriptors(b"\xff\xff")
            .method("/os.OSService/Processes")
            .is_none()
    );
}
