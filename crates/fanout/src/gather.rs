//! Merges unary replies: calls all nodes at once, waits for each no longer than the timeout, and
//! concatenates their replies in the order of arrival.

use std::time::Duration;

use bytes::BytesMut;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use http::Response;
use tonic::Status;
use tonic::body::Body;

use crate::chunks::Chunks;
use crate::contract::{Contract, Method};
use crate::frames::{HEAD, Messages};
use crate::limits::CallLimits;
use crate::merge::{NodeTag, TagError};
use crate::quota::Charge;

/// The largest message a client accepts.
pub(crate) const MAX_MERGED_BYTES: usize = 32 << 20;
/// Bytes of a status message of another node that are passed on.
const MAX_STATUS_BYTES: usize = 1 << 10;

/// A call to one node whose answer is pending.
pub(crate) struct NodeCall {
    pub(crate) tag: NodeTag,
    /// True if this node itself answers.
    pub(crate) here: bool,
    pub(crate) answer: BoxFuture<'static, Result<Response<Body>, Status>>,
}

/// A whole reply with its frame header, and the memory it takes.
struct Whole {
    reply: BytesMut,
    memory: Charge,
}

/// The state of a node's reply.
enum Reply {
    Whole(Whole),
    /// Larger than its share of the merged message: merged after all others.
    Large(Large),
}

struct Large {
    length: usize,
    state: LargeState,
}

enum LargeState {
    /// Not read yet: the other node waits.
    Unread(Messages),
    /// Read at once, because it is in this node's memory anyway.
    Read(Whole),
}

pub(crate) async fn gather(
    contract: &Contract,
    method: Method,
    calls: Vec<NodeCall>,
    limits: &CallLimits,
    timeout: Duration,
) -> Chunks {
    let started = tokio::time::Instant::now();
    let share = MAX_MERGED_BYTES / calls.len().max(1);
    let mut merged = Merged::new(contract, method);
    let mut large = LargeReplies::default();
    let mut waiting: FuturesUnordered<_> = calls
        .into_iter()
        .map(|NodeCall { tag, here, answer }| async move {
            let reply = within(timeout, read_first(answer, here, share, limits)).await;
            (tag, reply)
        })
        .collect();
    while let Some((tag, reply)) = waiting.next().await {
        match reply {
            Ok(Reply::Whole(whole)) => merged.add(&tag, whole),
            Ok(Reply::Large(reply)) => {
                for (tag, length) in large.push(tag, reply) {
                    merged.add_failure(&tag, &does_not_fit(length));
                }
            }
            Err(status) => merged.add_failure(&tag, &status),
        }
    }

    let mut free = merged.free_bytes();
    let mut waiting = FuturesUnordered::new();
    for (tag, Large { length, state }) in large.smallest_first() {
        if length > free {
            merged.add_failure(&tag, &does_not_fit(length));
            continue;
        }
        free -= length;
        let left = timeout.saturating_sub(started.elapsed());
        match state {
            LargeState::Read(whole) => merged.add(&tag, whole),
            LargeState::Unread(messages) => waiting.push(async move {
                let reply = within(left, only_message(messages, length, limits)).await;
                (tag, reply)
            }),
        }
    }
    while let Some((tag, reply)) = waiting.next().await {
        match reply {
            Ok(whole) => merged.add(&tag, whole),
            Err(status) => merged.add_failure(&tag, &status),
        }
    }
    merged.chunks
}

async fn read_first(
    answer: BoxFuture<'static, Result<Response<Body>, Status>>,
    here: bool,
    share: usize,
    limits: &CallLimits,
) -> Result<Reply, Status> {
    let mut messages = Messages::of(answer.await?)?;
    let length = messages
        .length(MAX_MERGED_BYTES)
        .await?
        .ok_or_else(|| Status::internal("it ended the call without an answer"))?;
    if length > share && !here {
        let state = LargeState::Unread(messages);
        return Ok(Reply::Large(Large { length, state }));
    }
    let whole = only_message(messages, length, limits).await?;
    Ok(if length > share {
        let state = LargeState::Read(whole);
        Reply::Large(Large { length, state })
    } else {
        Reply::Whole(whole)
    })
}

async fn only_message(
    mut messages: Messages,
    length: usize,
    limits: &CallLimits,
) -> Result<Whole, Status> {
    let memory = limits.memory(HEAD + length).await?;
    let reply = messages.message(length).await?;
    messages.end().await?;
    Ok(Whole { reply, memory })
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

/// Bounds the message of a status: another node may send any length.
pub(crate) fn shorten(status: Status) -> Status {
    let text = status.message();
    if text.len() <= MAX_STATUS_BYTES {
        return status;
    }
    let end = (0..=MAX_STATUS_BYTES).rfind(|end| text.is_char_boundary(*end));
    let start = &text[..end.unwrap_or(0)];
    Status::new(status.code(), format!("{start}…"))
}

/// Replies larger than their share. Those in memory never exceed the merged message: it can hold
/// no more of them, and smaller replies take precedence.
#[derive(Default)]
struct LargeReplies {
    replies: Vec<(NodeTag, Large)>,
    read_bytes: usize,
}

impl LargeReplies {
    /// Adds a reply; returns those that certainly do not fit any more.
    fn push(&mut self, tag: NodeTag, reply: Large) -> Vec<(NodeTag, usize)> {
        let is_read = |large: &Large| matches!(large.state, LargeState::Read(_));
        if is_read(&reply) {
            self.read_bytes += reply.length;
        }
        self.replies.push((tag, reply));
        let mut dropped = Vec::new();
        while self.read_bytes > MAX_MERGED_BYTES {
            let largest = (0..self.replies.len())
                .filter(|index| is_read(&self.replies[*index].1))
                .max_by_key(|index| self.replies[*index].1.length);
            let Some(largest) = largest else { break };
            let (tag, Large { length, .. }) = self.replies.swap_remove(largest);
            self.read_bytes -= length;
            dropped.push((tag, length));
        }
        dropped
    }

    /// The smaller ones first, so that a node cannot reserve space by declaring a large length.
    fn smallest_first(mut self) -> Vec<(NodeTag, Large)> {
        self.replies.sort_by_key(|(_, large)| large.length);
        self.replies
    }
}

/// The replies merged so far.
struct Merged<'a> {
    contract: &'a Contract,
    method: Method,
    chunks: Chunks,
}

impl<'a> Merged<'a> {
    fn new(contract: &'a Contract, method: Method) -> Self {
        Self {
            contract,
            method,
            chunks: Chunks::default(),
        }
    }

    fn free_bytes(&self) -> usize {
        MAX_MERGED_BYTES.saturating_sub(self.chunks.length())
    }

    fn add(&mut self, tag: &NodeTag, whole: Whole) {
        let Whole { reply, mut memory } = whole;
        let message = &reply[HEAD..];
        let tagged = match self.contract.check(self.method, message) {
            Ok(()) => tag.tag_reply(message, self.free_bytes()),
            Err(malformed) => Err(malformed.into()),
        };
        match tagged {
            Ok(tagged) if memory.resize(tagged.len()).is_ok() => {
                drop(reply);
                self.chunks.push(tagged, Some(memory));
            }
            Err(TagError::Malformed(_)) => self.add_failure(tag, &malformed()),
            Ok(_) | Err(TagError::TooLarge) => {
                self.add_failure(tag, &does_not_fit(message.len()));
            }
        }
    }

    /// The call has reserved memory for the failure of each of its nodes.
    fn add_failure(&mut self, tag: &NodeTag, status: &Status) {
        let status = shorten(status.clone());
        self.chunks.push(tag.failed_reply(&status), None);
    }
}
