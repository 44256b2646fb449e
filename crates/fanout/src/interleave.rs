//! Merges streams: each node's messages in their order, those of different nodes as they arrive.
//! Nothing is read ahead of the client.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, BoxStream, SelectAll, StreamExt};
use http::HeaderMap;
use http_body::Frame;
use http_body_util::StreamBody;
use tonic::Status;
use tonic::body::Body;

use crate::chunks::Chunk;
use crate::contract::{Contract, Method};
use crate::frames::{HEAD, Messages, set_length};
use crate::gather::{MAX_MERGED_BYTES, NodeCall, malformed, no_answer, shorten};
use crate::limits::CallLimits;
use crate::merge::NodeTag;

/// The message size every node may use, however many nodes there are.
const MIN_SHARE: usize = 1 << 20;
/// Larger messages count one by one; smaller ones are covered by what a stream counts for anyway.
pub(crate) const MAX_UNCOUNTED_BYTES: usize = 16 << 10;

/// The state of one node's stream.
enum State {
    Pending(NodeCall),
    Reading(Messages, NodeTag),
    Ended,
}

/// Returns the body of the merged stream, which ends with status OK when all streams have ended.
pub(crate) fn interleave(
    contract: &Arc<Contract>,
    method: Method,
    calls: Vec<NodeCall>,
    limits: &CallLimits,
    timeout: Duration,
) -> Body {
    let share = (MAX_MERGED_BYTES / calls.len().max(1)).max(MIN_SHARE);
    let nodes: SelectAll<BoxStream<'static, Bytes>> = calls
        .into_iter()
        .map(|call| {
            let merging = Merging {
                contract: Arc::clone(contract),
                method,
                limits: limits.clone(),
                share,
                timeout,
            };
            stream::unfold((State::Pending(call), merging), |(state, merging)| async {
                let (message, state) = merging.step(state).await?;
                Some((message, (state, merging)))
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

/// The merging of one node's stream.
struct Merging {
    contract: Arc<Contract>,
    method: Method,
    limits: CallLimits,
    /// The largest message of the node.
    share: usize,
    timeout: Duration,
}

impl Merging {
    /// Returns the next message and the state after it.
    async fn step(&self, state: State) -> Option<(Bytes, State)> {
        let (messages, tag) = match state {
            State::Ended => return None,
            State::Reading(messages, tag) => (Ok(messages), tag),
            State::Pending(NodeCall { tag, answer, .. }) => {
                let answered = match tokio::time::timeout(self.timeout, answer).await {
                    Ok(response) => response.and_then(Messages::of),
                    Err(_) => Err(no_answer(self.timeout)),
                };
                (answered, tag)
            }
        };
        let failed = match messages {
            Ok(mut messages) => match self.next(&mut messages, &tag).await {
                Ok(message) => return Some((message?, State::Reading(messages, tag))),
                Err(status) => status,
            },
            Err(status) => status,
        };
        let mut last = vec![0; HEAD];
        last.extend_from_slice(&tag.failure(&shorten(failed)));
        set_length(&mut last).ok()?;
        Some((last.into(), State::Ended))
    }

    async fn next(&self, messages: &mut Messages, tag: &NodeTag) -> Result<Option<Bytes>, Status> {
        let Some(length) = messages.length(self.share).await? else {
            return Ok(None);
        };
        let bytes = HEAD + length + tag.bytes().len();
        let memory = if bytes > MAX_UNCOUNTED_BYTES {
            Some(self.limits.memory(bytes).await?)
        } else {
            None
        };
        let mut message: BytesMut = messages.message(length).await?;
        self.contract
            .check(self.method, &message[HEAD..])
            .map_err(|_| malformed())?;
        message.extend_from_slice(tag.bytes());
        set_length(&mut message)?;
        Ok(Some(match memory {
            Some(memory) => Chunk::new(message.into(), memory).into_bytes(),
            None => message.freeze(),
        }))
    }
}
