//! Calls that name thousands of nodes, and callers that do not read the answers.

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::os::os_service_client::OsServiceClient;
use mainstay_identity::Role;
use mainstay_testkit::procfs::peak_resident;
use mainstay_testkit::{Credentials, TestNode, soon, to_nodes};
use prost::Message;
use tokio::io::AsyncWriteExt;
use tonic::{Code, Status};

use super::{MAX_RESIDENT_MIB, ask_version, assert_unharmed, http2, open_sockets};

/// Threads of a node under any attack; an idle one has a tenth.
const MAX_THREADS: usize = 160;

fn threads(node: &TestNode) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", node.pid()))
        .unwrap()
        .count()
}

fn own_name(node: &TestNode) -> String {
    format!("127.0.0.1:{}", node.listen().port())
}

/// Asks for this node through the fan-out, as somebody who means no harm.
async fn ask_itself(node: &TestNode, who: &Credentials) -> Result<(), Status> {
    let mut machine = MachineServiceClient::new(node.connect_as(who).await);
    let reply = machine.version(to_nodes((), [own_name(node)])).await?;
    let message = &reply.into_inner().messages[0];
    let error = message.metadata.clone().unwrap().error;
    assert!(message.version.is_some(), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_call_that_names_this_node_thousands_of_times_stays_small() {
    let node = TestNode::builder()
        .config("[fleet]\nanswer_timeout = '10s'\n")
        .start();
    let reader = node.credentials("rita", &[Role::Reader]);
    let names = vec![own_name(&node); 2300];
    let os = OsServiceClient::new(node.connect_as(&reader).await);
    let mut os = os.max_decoding_message_size(64 << 20);
    let attack = tokio::spawn(async move { os.processes(to_nodes((), &names)).await });
    let bystander = node.connect_locally().await;
    let mut most = 0;
    while !attack.is_finished() {
        ask_version(bystander.clone()).await;
        most = most.max(threads(&node));
    }
    let messages = attack.await.unwrap().unwrap().into_inner().messages;
    assert_eq!(messages.len(), 2300);
    assert!(messages.iter().any(|message| !message.processes.is_empty()));
    for message in messages {
        let error = message.metadata.unwrap().error;
        assert_eq!(message.processes.is_empty(), !error.is_empty(), "{error}");
    }
    assert!(most <= MAX_THREADS, "{most} threads");
    let peak = peak_resident(node.pid()).unwrap() >> 20;
    assert!(peak < MAX_RESIDENT_MIB, "the peak RSS is {peak} MiB");
    assert_unharmed(&node).await;
}

/// A caller who reads nothing holds its own share, and gives it back by going away.
#[tokio::test]
async fn unread_answers_take_the_share_of_their_caller_only() {
    const CALLS: u32 = 20;
    /// Eight such calls take nearly all of the share, and leave enough for the streams in them.
    const NODES: usize = 3900;
    let node = TestNode::start();
    let attacker = node.credentials("attacker", &[Role::Reader]);
    let other = node.credentials("other", &[Role::Reader]);
    let name = own_name(&node);
    let nodes = vec![("nodes", name.as_str()); NODES];
    let mut bytes = http2::opening();
    let everything = mainstay_api::machine::LogsRequest {
        id: "mainstay".to_owned(),
        follow: true,
        tail_lines: -1,
        ..Default::default()
    };
    for number in 0..CALLS {
        let path = "/machine.MachineService/Logs";
        let message = everything.encode_to_vec();
        http2::call_with(&mut bytes, number, path, &message, &nodes);
    }
    let mut connection = attacker.handshake(node.listen()).await.unwrap();
    connection.write_all(&bytes).await.unwrap();
    connection.flush().await.unwrap();

    // The first call that does not fit into the share: those before it stay open.
    let from = connection.get_ref().0.local_addr().unwrap();
    node.wait_for_log(&format!(
        "who=\"attacker (os:reader)\" from={from} code=RESOURCE_EXHAUSTED"
    ));
    let most = threads(&node);
    // As large, and answered at once: none of them is a peer.
    let large = async |who: &Credentials| {
        let names = vec!["nobody.invalid"; NODES];
        let mut machine = MachineServiceClient::new(node.connect_as(who).await);
        machine.version(to_nodes((), names)).await.map(drop)
    };
    let refused = large(&attacker).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    large(&other).await.unwrap();
    ask_itself(&node, &other).await.unwrap();
    ask_itself(&node, &node.admin()).await.unwrap();
    assert!(most <= MAX_THREADS, "{most} threads");
    assert_unharmed(&node).await;

    drop(connection);
    soon("the share to be given back", async {
        while large(&attacker).await.is_err() {}
    })
    .await;
    assert_unharmed(&node).await;
}

/// Nodes that take the connection and say nothing, three hundred of them.
#[tokio::test]
async fn connection_attempts_are_bounded_and_end_when_the_caller_goes() {
    const NODES: usize = 300;
    const PER_CALL: usize = 64;
    const PER_CALLER: usize = 128;
    /// Bystanders, and what is just being closed.
    const MARGIN: usize = 24;
    let node = TestNode::builder()
        // Far longer than any wait of this test.
        .config("[fleet]\nconnect_timeout = '10m'\n[forwarding]\ntargets = 'any'\n")
        .start();
    let silent: Vec<_> = (0..NODES)
        .map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let names: Vec<_> = silent
        .iter()
        .map(|listener| listener.local_addr().unwrap().to_string())
        .collect();
    let attacker = node.credentials("attacker", &[Role::Reader]);
    let bystander = node.connect_locally().await;
    let idle = open_sockets(&node);
    for (calls, bound) in [(1, PER_CALL), (8, PER_CALLER)] {
        let machine = MachineServiceClient::new(node.connect_as(&attacker).await);
        let attack: Vec<_> = (0..calls)
            .map(|_| {
                let (mut machine, names) = (machine.clone(), names.clone());
                tokio::spawn(async move { machine.version(to_nodes((), &names)).await })
            })
            .collect();
        soon("all the attempts there may be", async {
            while open_sockets(&node) < idle + bound {
                ask_version(bystander.clone()).await;
            }
        })
        .await;
        for _ in 0..100 {
            ask_version(bystander.clone()).await;
            let sockets = open_sockets(&node);
            assert!(sockets <= idle + bound + MARGIN, "{sockets} sockets");
        }
        drop(machine);
        for call in attack {
            call.abort();
        }
        soon("the sockets to be closed", async {
            while open_sockets(&node) > idle + MARGIN {
                ask_version(bystander.clone()).await;
            }
        })
        .await;
    }
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn four_thousand_and_ninety_six_nodes_can_be_named_in_one_call() {
    let node = TestNode::start();
    let mut machine = MachineServiceClient::new(node.connect().await);
    let mut names = vec![own_name(&node); 2048];
    // As long as names of machines get.
    names.extend((0..2048).map(|number| {
        format!("worker-{number:04}.rack-17.zone-b.region-north.production.example.org")
    }));
    let reply = machine.hostname(to_nodes((), &names)).await.unwrap();
    let messages = reply.into_inner().messages;
    assert_eq!(messages.len(), names.len());
    let (own, others): (Vec<_>, Vec<_>) = messages
        .into_iter()
        .map(|message| message.metadata.unwrap())
        .partition(|metadata| metadata.hostname == names[0]);
    assert_eq!(own.len(), 2048);
    assert!(own.iter().all(|metadata| metadata.error.is_empty()));
    let refused = |error: &str| error.contains("no request forwarding");
    assert!(others.iter().all(|metadata| refused(&metadata.error)));

    names.push(names[0].clone());
    let status = machine.hostname(to_nodes((), &names)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("4096"), "{status}");
}

#[tokio::test]
async fn metadata_is_bounded_before_it_is_copied_for_every_node() {
    let node = TestNode::start();
    let mut machine = MachineServiceClient::new(node.connect().await);
    let mut request = to_nodes((), [own_name(&node)]);
    for _ in 0..1000 {
        let metadata = request.metadata_mut();
        metadata.append("x-trace", "some".parse().unwrap());
    }
    let status = machine.version(request).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    ask_itself(&node, &node.admin()).await.unwrap();
}
