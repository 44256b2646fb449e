//! Requests that make no sense, and a disk that takes no record.

use std::io::Write as _;

use mainstay_api::machine::reboot_request::Mode;
use mainstay_api::machine::{RebootRequest, ResetPartitionSpec, ResetRequest};
use mainstay_testkit::{PrivateMounts, TestNode, require};
use tonic::Code;

use super::Subject;

fn partition(label: &str, wipe: bool) -> ResetPartitionSpec {
    ResetPartitionSpec {
        label: label.to_owned(),
        wipe,
    }
}

#[tokio::test]
async fn a_request_that_makes_no_sense_is_refused_before_anything_is_done() {
    let subject = Subject::start("hostile");
    let mut machine = subject.machine().await;
    let reboot = machine
        .reboot(RebootRequest { mode: 99 })
        .await
        .unwrap_err();
    assert_eq!(reboot.code(), Code::InvalidArgument);
    assert!(reboot.message().contains("99"), "{reboot}");
    let partitions = |specs: Vec<ResetPartitionSpec>| ResetRequest {
        system_partitions_to_wipe: specs,
        ..ResetRequest::default()
    };
    let long = "x".repeat(1 << 20);
    for (request, code, word) in [
        (
            ResetRequest {
                mode: -7,
                ..ResetRequest::default()
            },
            Code::InvalidArgument,
            "-7",
        ),
        (
            ResetRequest {
                mode: 2,
                ..ResetRequest::default()
            },
            Code::FailedPrecondition,
            "no user disk",
        ),
        (
            ResetRequest {
                user_disks_to_wipe: vec!["/dev/sda".to_owned()],
                ..ResetRequest::default()
            },
            Code::FailedPrecondition,
            "disks",
        ),
        (
            partitions(vec![partition("META", true)]),
            Code::InvalidArgument,
            "META",
        ),
        (
            partitions(vec![partition(&long, true)]),
            Code::InvalidArgument,
            "EPHEMERAL",
        ),
        (
            partitions(vec![partition("STATE", false)]),
            Code::InvalidArgument,
            "nothing",
        ),
        (
            partitions(vec![partition("STATE", true); 100_000]),
            Code::InvalidArgument,
            "100000",
        ),
    ] {
        let status = machine.reset(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(word), "{word}: {status}");
        assert!(status.message().len() < 400, "{status}");
    }
    machine.version(()).await.unwrap();
    assert!(
        !subject
            .node
            .state()
            .join("lifecycle/sequence.json")
            .exists()
    );
}

#[tokio::test]
async fn on_a_full_disk_a_reboot_is_refused_and_a_forced_one_goes_through() {
    require!(Root);
    let builder = TestNode::builder();
    let mounts = PrivateMounts::tmpfs(&builder.state(), 4096);
    let node = builder.inside(mounts.namespace()).config("").start();
    let filler = node.state().join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    for size in [4096, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
    let socket = mainstay_testkit::connect_unix(&node.socket())
        .await
        .unwrap();
    let mut machine =
        mainstay_api::machine::machine_service_client::MachineServiceClient::new(socket);
    let status = machine.reboot(RebootRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(
        status.message().contains("cannot record sequence reboot"),
        "{status}"
    );
    let forced = RebootRequest {
        mode: Mode::Force.into(),
    };
    // Of the daemon that is replaced: a stream opened later might be of the next one.
    let events = mainstay_api::machine::EventsRequest::default();
    let mut events = machine.events(events).await.unwrap().into_inner();
    machine.reboot(forced).await.unwrap();
    while let Ok(Some(_)) = events.message().await {}
    let socket = mainstay_testkit::connect_unix(&node.socket())
        .await
        .unwrap();
    mainstay_api::machine::machine_service_client::MachineServiceClient::new(socket)
        .version(())
        .await
        .unwrap();
    assert!(
        node.stderr().contains("replaced the last daemon in place"),
        "{}",
        node.stderr()
    );
}
