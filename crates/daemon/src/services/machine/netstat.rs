//! `Netstat`: the network sockets.

use std::collections::HashMap;

use mainstay_api::machine::connect_record::{Process, State, TimerActive};
use mainstay_api::machine::netstat_request::{Filter, L4proto};
use mainstay_api::machine::{ConnectRecord, Netstat, NetstatRequest};
use mainstay_error_chain::chain;
use mainstay_node::sockets::{
    Namespaces, NamespacesError, Owner, Protocol, Socket, SocketsOf, owners, sockets,
};
use prost::Message;
use tonic::Status;

use crate::rpc::MAX_MESSAGE_BYTES;
use crate::text::shorten;

/// Network namespaces that one call may name.
const MAX_NAMES: usize = 1024;
/// The envelope around the answer, with a margin.
const ENVELOPE_BYTES: usize = 64;

pub(super) async fn netstat(request: NetstatRequest) -> Result<Netstat, Status> {
    let filter = Filter::try_from(request.filter).map_err(|_| {
        Status::invalid_argument(format!(
            "filter {} is unknown; 0 is all sockets, 1 connected ones, 2 listening ones",
            request.filter
        ))
    })?;
    let names = request.netns.as_ref().map_or(0, |netns| netns.netns.len());
    if names > MAX_NAMES {
        return Err(Status::invalid_argument(format!(
            "{names} network namespaces are too many; name at most {MAX_NAMES}, or ask for all"
        )));
    }
    tokio::task::spawn_blocking(move || answer(filter, request))
        .await
        .map_err(|_| Status::internal("reading the sockets failed; the node's log says why"))?
}

fn answer(filter: Filter, request: NetstatRequest) -> Result<Netstat, Status> {
    let protocols = protocols(request.l4proto.unwrap_or_default());
    let netns = request.netns.unwrap_or_default();
    let wanted = Namespaces {
        own: netns.hostnetwork,
        named: netns.netns,
        all: netns.allnetns,
    };
    let found = sockets(&protocols, &wanted).map_err(|error| status(&error))?;
    let owners = if request.feature.unwrap_or_default().pid {
        let owners = owners()
            .map_err(|error| Status::internal(format!("cannot read the processes: {error}")))?;
        Some(owners)
    } else {
        None
    };
    let mut records = Vec::new();
    for SocketsOf { namespace, sockets } in found {
        let wanted = sockets.into_iter().filter(|socket| match filter {
            Filter::All => true,
            Filter::Connected => !socket.waits_for_anybody(),
            Filter::Listening => socket.waits_for_anybody(),
        });
        records.extend(wanted.map(|socket| record(&socket, &namespace, owners.as_ref())));
    }
    let netstat = Netstat {
        metadata: None,
        connectrecord: records,
    };
    if netstat.encoded_len() + ENVELOPE_BYTES > MAX_MESSAGE_BYTES {
        return Err(Status::resource_exhausted(format!(
            "{} sockets do not fit into an answer; ask for fewer by filter, protocol or \
             namespace",
            netstat.connectrecord.len()
        )));
    }
    Ok(netstat)
}

fn protocols(chosen: L4proto) -> Vec<Protocol> {
    let chosen = [
        chosen.tcp,
        chosen.tcp6,
        chosen.udp,
        chosen.udp6,
        chosen.udplite,
        chosen.udplite6,
        chosen.raw,
        chosen.raw6,
    ];
    let none = !chosen.contains(&true);
    Protocol::ALL
        .into_iter()
        .zip(chosen)
        .filter(|(_, chosen)| *chosen || none)
        .map(|(protocol, _)| protocol)
        .collect()
}

fn record(socket: &Socket, namespace: &str, owners: Option<&HashMap<u64, Owner>>) -> ConnectRecord {
    let state = State::try_from(i32::from(socket.state)).unwrap_or(State::Reserved);
    let timer = TimerActive::try_from(i32::from(socket.timer)).unwrap_or(TimerActive::Off);
    ConnectRecord {
        l4proto: socket.protocol.name().to_owned(),
        localip: socket.local.0.to_string(),
        localport: socket.local.1.into(),
        remoteip: socket.remote.0.to_string(),
        remoteport: socket.remote.1.into(),
        state: state.into(),
        txqueue: socket.send_queue,
        rxqueue: socket.receive_queue,
        tr: timer.into(),
        timerwhen: socket.timer_when,
        retrnsmt: socket.retransmits,
        uid: socket.uid,
        timeout: socket.unanswered_probes,
        inode: socket.inode,
        r#ref: socket.references,
        pointer: socket.pointer,
        // Clients that asked for it rely on there being one, found or not.
        process: owners.map(|owners| process(owners.get(&socket.inode))),
        netns: namespace.to_owned(),
    }
}

fn process(owner: Option<&Owner>) -> Process {
    owner.map_or_else(Process::default, |owner| Process {
        pid: u32::try_from(owner.pid).unwrap_or(0),
        name: owner.name.clone(),
    })
}

fn status(error: &NamespacesError) -> Status {
    let message = chain(error);
    match error {
        NamespacesError::NotFound { .. } => Status::not_found(message),
        NamespacesError::BadName { name } => {
            Status::invalid_argument(format!("network namespace {:?} is no name", shorten(name)))
        }
        NamespacesError::NotANamespace { .. } | NamespacesError::Denied { .. } => {
            Status::failed_precondition(message)
        }
        NamespacesError::Io { .. } => Status::internal(message),
    }
}
