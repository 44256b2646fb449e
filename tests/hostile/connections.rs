//! More connections than anybody needs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::{self, FuturesUnordered};
use mainstay_identity::Role;
use mainstay_testkit::{Credentials, TestNode, connect_over, soon};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use super::{SERVED_WITHIN, ask_version, assert_unharmed, http2, noise, open_sockets};

/// Beyond the connections themselves: listeners, bystanders, and what is just being closed.
const MARGIN: usize = 64;

fn allow_many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).unwrap();
}

fn node_with(limits: &str) -> TestNode {
    TestNode::builder()
        .config(&format!("[limits]\nhandshake_timeout = '1h'\n{limits}"))
        .start()
}

pub(super) async fn connect_from(source: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    let source = IpAddr::V4(Ipv4Addr::from(source));
    socket.bind(SocketAddr::new(source, 0)).unwrap();
    socket.connect(to).await.unwrap()
}

/// Waits until the node has ended so many of the connections.
pub(super) async fn until_ended(connections: &[TcpStream], count: usize) {
    let endings: FuturesUnordered<_> = connections.iter().map(TcpStream::readable).collect();
    let enough = endings.take(count).count();
    let ended = soon("the surplus to be ended", enough).await;
    assert_eq!(ended, count);
}

/// A client at another address, because the attacker's own is of course crowded.
async fn assert_neighbour_is_served(node: &TestNode, neighbour: &Credentials) {
    let served = async {
        let stream = connect_from([127, 0, 0, 9], node.listen()).await;
        let stream = neighbour.handshake_over(stream).await.unwrap();
        ask_version(connect_over(stream).await.unwrap()).await;
        ask_version(node.connect_locally().await).await;
    };
    tokio::time::timeout(SERVED_WITHIN, served)
        .await
        .expect("others are served");
}

#[tokio::test]
async fn ten_thousand_silent_connections_leave_the_node_serving() {
    const CONNECTIONS: usize = 10_000;
    const PER_CLIENT: usize = 256;
    allow_many_descriptors();
    let node = node_with("");
    let neighbour = node.credentials("neighbour", &[Role::Reader]);
    let listen = node.listen();
    let opening = stream::iter(0..CONNECTIONS)
        .map(|_| TcpStream::connect(listen))
        .buffer_unordered(100)
        .map(Result::unwrap);
    let mut connections = Vec::new();
    let mut opening = std::pin::pin!(opening);
    while let Some(connection) = soon("the connections", opening.next()).await {
        connections.push(connection);
        if connections.len() % 2500 == 0 {
            assert_neighbour_is_served(&node, &neighbour).await;
        }
    }
    // Not all but the last: where the queue of the listener overflows, the kernel forgets some
    // that this end takes for open.
    until_ended(&connections, CONNECTIONS - 4 * PER_CLIENT).await;
    let sockets = open_sockets(&node);
    assert!(sockets <= PER_CLIENT + MARGIN, "{sockets} sockets are open");
    // All of them are still open at this end, and from the same address too.
    assert_unharmed(&node).await;
    drop(connections);
}

/// The kernel keeps those that come while the node has no time; one it has no place for waits
/// a second and more for its next try.
#[tokio::test]
async fn a_burst_of_connections_waits_in_the_listen_queue() {
    const BURST: usize = 600;
    let node = node_with("");
    let listen = node.listen();
    node.signal(Signal::STOP);
    let burst = join_all((0..BURST).map(|_| TcpStream::connect(listen)));
    let kept = tokio::time::timeout(SERVED_WITHIN, burst).await;
    node.signal(Signal::CONT);
    let connections = kept.expect("the queue of the listener holds them all");
    assert!(connections.iter().all(Result::is_ok));
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn six_hundred_connections_of_one_client_are_limited() {
    const CONNECTIONS: usize = 600;
    const PER_CLIENT: usize = 100;
    let node = node_with(&format!("connections_per_client = {PER_CLIENT}\n"));
    let crowd = node.credentials("crowd", &[Role::Reader]);
    let neighbour = node.connect().await;
    ask_version(neighbour.clone()).await;
    let listen = node.listen();
    let opening = stream::iter(0..CONNECTIONS)
        .map(|_| async {
            let mut stream = crowd.handshake(listen).await.unwrap();
            // A greeting and no call; some of them the node has ended by now.
            let _ = stream.write_all(&http2::opening()).await;
            let _ = stream.flush().await;
            stream
        })
        .buffer_unordered(16);
    let mut opening = std::pin::pin!(opening);
    let mut connections = Vec::new();
    while let Some(connection) = soon("a handshake", opening.next()).await {
        connections.push(connection);
    }
    let mut ended = 0;
    // Ended for good when what the node had to say has been read to its end.
    let mut endings: FuturesUnordered<_> = connections
        .iter_mut()
        .map(|stream| async move {
            let _ = tokio::io::copy(stream, &mut tokio::io::sink()).await;
        })
        .collect();
    while ended < CONNECTIONS - PER_CLIENT {
        soon("the surplus to be ended", endings.next())
            .await
            .unwrap();
        ended += 1;
    }
    let sockets = open_sockets(&node);
    assert!(sockets <= PER_CLIENT + MARGIN, "{sockets} sockets are open");
    ask_version(neighbour).await;
    assert_unharmed(&node).await;
}

/// A connection that sends garbage and stays open is not kept longer than one that sends nothing.
#[tokio::test]
async fn two_thousand_connections_with_garbage_are_limited() {
    const CONNECTIONS: usize = 2000;
    const PER_CLIENT: usize = 64;
    allow_many_descriptors();
    let node = node_with(&format!("connections_per_client = {PER_CLIENT}\n"));
    let listen = node.listen();
    let opening = stream::iter(0..CONNECTIONS)
        .map(|_| async {
            let mut stream = TcpStream::connect(listen).await.unwrap();
            let _ = stream.write_all(&noise(7, 64)).await;
            stream
        })
        .buffer_unordered(64);
    let mut opening = std::pin::pin!(opening);
    let mut connections = Vec::new();
    let mut most = 0;
    while let Some(connection) = soon("the connections", opening.next()).await {
        connections.push(connection);
        if connections.len() % 100 == 0 {
            most = most.max(open_sockets(&node));
        }
    }
    // Those that connected and are not accepted yet are the kernel's, not the node's.
    assert!(most <= PER_CLIENT + MARGIN, "{most} sockets were open");
    assert_unharmed(&node).await;
    drop(connections);
}

/// The limit of all connections is reached by people the node does not know, from many
/// addresses; who has shown a certificate stays.
#[tokio::test]
async fn anonymous_connections_do_not_evict_authenticated_ones() {
    const ALL: usize = 60;
    let node = node_with(&format!(
        "connections = {ALL}\nconnections_per_client = 20\n"
    ));
    let known = node.connect().await;
    ask_version(known.clone()).await;
    let mut strangers = Vec::new();
    for number in 0..200_u8 {
        strangers.push(connect_from([127, 0, 1, 1 + number % 25], node.listen()).await);
    }
    until_ended(&strangers, 200 - ALL).await;
    let sockets = open_sockets(&node);
    assert!(sockets <= ALL + MARGIN, "{sockets} sockets are open");
    ask_version(known).await;
    assert_unharmed(&node).await;
}
