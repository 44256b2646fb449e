//! Merges unary replies: calls all nodes at once, waits for each no longer than the timeout, and
//! concatenates their replies in the order of arrival.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use http::Response;
use tonic::Status;
use tonic::body::Body;

use crate::contract::{Contract, Method};
use crate::frames::{HEAD, Messages, set_length};
use crate::merge::{NodeTag, TagError};

/// The largest message a client accepts.
pub(crate) const MAX_MERGED_BYTES: usize = 32 << 20;

/// A call to one node whose answer is pending.
pub(crate) struct NodeCall {
    pub(crate) tag: NodeTag,
    pub(crate) answer: BoxFuture<'static, Result<Response<Body>, Status>>,
}

/// The state of a node's reply.
enum Reply {
    Whole(BytesMut),
    /// Larger than its share of the merged message: read after all others.
    Large {
        length: usize,
        messages: Messages,
    },
}

pub(crate) async fn gather(
    contract: &Contract,
    method: Method,
    calls: Vec<NodeCall>,
    timeout: Duration,
) -> Bytes {
    let started = tokio::time::Instant::now();
    let share = MAX_MERGED_BYTES / calls.len().max(1);
    let mut merged = Merged::new(contract, method);
    let mut large = Vec::new();
    let mut waiting: FuturesUnordered<_> = calls
        .into_iter()
        .map(|NodeCall { tag, answer }| async move {
            let reply = within(timeout, read_first(answer, share)).await;
            (tag, reply)
        })
        .collect();
    while let Some((tag, reply)) = waiting.next().await {
        match reply {
            Ok(Reply::Whole(reply)) => merged.add(&tag, &reply[HEAD..]),
            Ok(Reply::Large { length, messages }) => large.push((length, tag, messages)),
            Err(status) => merged.add_failure(&tag, &status),
        }
    }

    // The smaller ones first, so that a node cannot reserve space by declaring a large length.
    large.sort_by_key(|(length, ..)| *length);
    let mut free = merged.free_bytes();
    let mut waiting = FuturesUnordered::new();
    for (length, tag, mut messages) in large {
        if length > free {
            merged.add_failure(&tag, &does_not_fit(length));
            continue;
        }
        free -= length;
        let left = timeout.saturating_sub(started.elapsed());
        waiting.push(async move {
            let reply = within(left, async { only_message(&mut messages, length).await }).await;
            (tag, reply)
        });
    }
    while let Some((tag, reply)) = waiting.next().await {
        match reply {
            Ok(reply) => merged.add(&tag, &reply[HEAD..]),
            Err(status) => merged.add_failure(&tag, &status),
        }
    }
    merged.finish()
}

async fn read_first(
    answer: BoxFuture<'static, Result<Response<Body>, Status>>,
    share: usize,
) -> Result<Reply, Status> {
    let mut messages = Messages::of(answer.await?)?;
    match messages.length(MAX_MERGED_BYTES).await? {
        None => Err(Status::internal("it ended the call without an answer")),
        Some(length) if length > share => Ok(Reply::Large { length, messages }),
        Some(length) => only_message(&mut messages, length).await.map(Reply::Whole),
    }
}

async fn only_message(messages: &mut Messages, length: usize) -> Result<BytesMut, Status> {
    let message = messages.message(length).await?;
    messages.end().await?;
    Ok(message)
}

async fn within<T>(
    timeout: Duration,
    work: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match tokio::time::timeout(timeout, work).await {
        Ok(done) => done,
        Err(_) => Err(no_answer(timeout)),
    }
}

pub(crate) fn no_answer(timeout: Duration) -> Status {
    let timeout = Duration::from_millis(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
    Status::deadline_exceeded(format!(
        "no answer within {}",
        humantime::format_duration(timeout)
    ))
}

fn does_not_fit(length: usize) -> Status {
    Status::resource_exhausted(format!(
        "its answer of {length} bytes does not fit into one message with the others'; call this node alone"
    ))
}

pub(crate) fn malformed() -> Status {
    Status::internal("it sent a message that is not an answer to this call")
}

/// The replies merged so far, with a frame header.
struct Merged<'a> {
    contract: &'a Contract,
    method: Method,
    reply: Vec<u8>,
}

impl<'a> Merged<'a> {
    fn new(contract: &'a Contract, method: Method) -> Self {
        Self {
            contract,
            method,
            reply: vec![0; HEAD],
        }
    }

    fn free_bytes(&self) -> usize {
        (MAX_MERGED_BYTES + HEAD).saturating_sub(self.reply.len())
    }

    fn add(&mut self, tag: &NodeTag, reply: &[u8]) {
        let tagged = match self.contract.check(self.method, reply) {
            Ok(()) => tag.tag_reply(reply, self.free_bytes()),
            Err(malformed) => Err(malformed.into()),
        };
        match tagged {
            Ok(tagged) => self.reply.extend_from_slice(&tagged),
            Err(TagError::Malformed(_)) => self.add_failure(tag, &malformed()),
            Err(TagError::TooLarge) => self.add_failure(tag, &does_not_fit(reply.len())),
        }
    }

    fn add_failure(&mut self, tag: &NodeTag, status: &Status) {
        self.reply.extend_from_slice(&tag.failed_reply(status));
    }

    fn finish(mut self) -> Bytes {
        // Cannot fail: the header is reserved, and the length is bounded.
        let _ = set_length(&mut self.reply);
        self.reply.into()
    }
}
