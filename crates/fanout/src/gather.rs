//! One reply of many: asks all nodes at once, waits for each no longer than the bound, and puts
//! their replies after one another as they come.

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

/// The largest message a client takes.
pub(crate) const MOST_BYTES: usize = 32 << 20;

/// One node, and its answer on the way.
pub(crate) struct Asked {
    pub(crate) tag: NodeTag,
    pub(crate) answer: BoxFuture<'static, Result<Response<Body>, Status>>,
}

/// How far a node's reply has come.
enum Reply {
    Whole(BytesMut),
    /// More than its share of the one message all must fit in: it waits until the others are there.
    Large {
        length: usize,
        messages: Messages,
    },
}

pub(crate) async fn gather(
    contract: &Contract,
    method: Method,
    asked: Vec<Asked>,
    bound: Duration,
) -> Bytes {
    let began = tokio::time::Instant::now();
    let share = MOST_BYTES / asked.len().max(1);
    let mut merged = Merged::new(contract, method);
    let mut large = Vec::new();
    let mut waiting: FuturesUnordered<_> = asked
        .into_iter()
        .map(|Asked { tag, answer }| async move {
            let reply = within(bound, first_look(answer, share)).await;
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

    // The smaller ones first: one that boasts takes no room from others.
    large.sort_by_key(|(length, ..)| *length);
    let mut room = merged.room();
    let mut waiting = FuturesUnordered::new();
    for (length, tag, mut messages) in large {
        if length > room {
            merged.add_failure(&tag, &does_not_fit(length));
            continue;
        }
        room -= length;
        let left = bound.saturating_sub(began.elapsed());
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

async fn first_look(
    answer: BoxFuture<'static, Result<Response<Body>, Status>>,
    share: usize,
) -> Result<Reply, Status> {
    let mut messages = Messages::of(answer.await?)?;
    match messages.length(MOST_BYTES).await? {
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
    bound: Duration,
    work: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match tokio::time::timeout(bound, work).await {
        Ok(done) => done,
        Err(_) => Err(no_answer(bound)),
    }
}

pub(crate) fn no_answer(bound: Duration) -> Status {
    let bound = Duration::from_millis(u64::try_from(bound.as_millis()).unwrap_or(u64::MAX));
    Status::deadline_exceeded(format!(
        "no answer within {}",
        humantime::format_duration(bound)
    ))
}

fn does_not_fit(length: usize) -> Status {
    Status::resource_exhausted(format!(
        "its answer of {length} bytes does not fit into one message with the others'; ask it alone"
    ))
}

pub(crate) fn malformed() -> Status {
    Status::internal("it sent something that is not an answer to this call")
}

/// The replies so far, as one message with its head.
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

    fn room(&self) -> usize {
        (MOST_BYTES + HEAD).saturating_sub(self.reply.len())
    }

    fn add(&mut self, tag: &NodeTag, reply: &[u8]) {
        let tagged = match self.contract.check(self.method, reply) {
            Ok(()) => tag.tag_reply(reply, self.room()),
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
        // Cannot fail: there is a head, and what follows it is bounded.
        let _ = set_length(&mut self.reply);
        self.reply.into()
    }
}
