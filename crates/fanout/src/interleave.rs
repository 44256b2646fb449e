//! One stream of many: each node's messages in their order, those of different nodes as they
//! arrive. Nothing is read ahead of whoever reads the stream.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, BoxStream, SelectAll, StreamExt};
use http::HeaderMap;
use http_body::Frame;
use http_body_util::StreamBody;
use tonic::Status;
use tonic::body::Body;

use crate::contract::{Contract, Method};
use crate::frames::{HEAD, Messages, set_length};
use crate::gather::{Asked, MOST_BYTES, malformed, no_answer};
use crate::merge::NodeTag;

/// No message of a stream is as large, but what many nodes may have in memory must be bounded.
const LEAST_SHARE: usize = 1 << 20;

/// Where the stream of one node is.
enum State {
    Asked(Asked),
    Reading(Messages, NodeTag),
    Ended,
}

/// The body of the merged stream; it ends with status OK when all nodes' streams have ended.
pub(crate) fn interleave(
    contract: &Arc<Contract>,
    method: Method,
    asked: Vec<Asked>,
    bound: Duration,
) -> Body {
    let share = (MOST_BYTES / asked.len().max(1)).max(LEAST_SHARE);
    let nodes: SelectAll<BoxStream<'static, Bytes>> = asked
        .into_iter()
        .map(|asked| {
            let contract = Arc::clone(contract);
            stream::unfold(State::Asked(asked), move |state| {
                let contract = Arc::clone(&contract);
                async move { step(&contract, method, state, share, bound).await }
            })
            .boxed()
        })
        .collect();
    let end = stream::once(async {
        let mut trailers = HeaderMap::new();
        Status::ok("").add_header(&mut trailers)?;
        Ok::<_, Status>(Frame::trailers(trailers))
    });
    Body::new(StreamBody::new(
        nodes.map(|message| Ok(Frame::data(message))).chain(end),
    ))
}

/// The next message of one node, and what comes after it.
async fn step(
    contract: &Contract,
    method: Method,
    state: State,
    share: usize,
    bound: Duration,
) -> Option<(Bytes, State)> {
    let (messages, tag) = match state {
        State::Ended => return None,
        State::Reading(messages, tag) => (Ok(messages), tag),
        State::Asked(Asked { tag, answer }) => {
            let answered = match tokio::time::timeout(bound, answer).await {
                Ok(response) => response.and_then(Messages::of),
                Err(_) => Err(no_answer(bound)),
            };
            (answered, tag)
        }
    };
    let failed = match messages {
        Ok(mut messages) => match next(contract, method, &mut messages, &tag, share).await {
            Ok(message) => return Some((message?, State::Reading(messages, tag))),
            Err(status) => status,
        },
        Err(status) => status,
    };
    let mut last = vec![0; HEAD];
    last.extend_from_slice(&tag.failure(&failed));
    set_length(&mut last).ok()?;
    Some((last.into(), State::Ended))
}

async fn next(
    contract: &Contract,
    method: Method,
    messages: &mut Messages,
    tag: &NodeTag,
    share: usize,
) -> Result<Option<Bytes>, Status> {
    let Some(length) = messages.length(share).await? else {
        return Ok(None);
    };
    let mut message: BytesMut = messages.message(length).await?;
    contract
        .check(method, &message[HEAD..])
        .map_err(|_| malformed())?;
    message.extend_from_slice(tag.bytes());
    set_length(&mut message)?;
    Ok(Some(message.freeze()))
}
