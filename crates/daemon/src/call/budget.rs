//! Bounds on unfinished requests: their memory, over all callers, and the time until they are
//! complete.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, Request};
use http_body::{Body, Frame, SizeHint};
use prost::Message;
use tokio::time::{Instant, Sleep};
use tonic::Status;

use crate::connection::Connections;
use crate::requester::Requester;

/// Three messages of the maximum size.
const MAX_BYTES: usize = 96 << 20;
/// Beyond that, for administrators and local users.
const RESERVED_BYTES: usize = 32 << 20;
/// Bytes that every call may send uncounted: ordinary requests never reach the budget.
const FREE_BYTES: usize = 64 << 10;
const FREE_HEADER_BYTES: usize = 4 << 10;
/// A request gets another second for this many bytes, so that a slow link can send a large one.
const MIN_BYTES_PER_SECOND: usize = 256 << 10;
/// Operators may write any duration, and instants end somewhere.
const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3600);
/// The length of the header of a gRPC message.
const HEAD: usize = 5;

#[derive(Debug, Clone)]
pub(super) struct Budget {
    used: Arc<AtomicUsize>,
    /// Has the time limit.
    connections: Arc<Connections>,
}

impl Budget {
    pub(super) fn new(connections: &Arc<Connections>) -> Self {
        Self {
            used: Arc::default(),
            connections: Arc::clone(connections),
        }
    }

    pub(super) fn meter<B>(&self, request: Request<B>) -> Request<Metered<B>> {
        let headers = bytes_of(request.headers()).saturating_sub(FREE_HEADER_BYTES);
        let method = request.uri().path().to_owned();
        let reserved = if Requester::current().privileged {
            RESERVED_BYTES
        } else {
            0
        };
        request.map(|inner| {
            let mut metered = Metered {
                inner,
                budget: self.clone(),
                max: MAX_BYTES + reserved,
                received: 0,
                headers,
                charged: 0,
                exhausted: false,
                method,
                progress: Progress::default(),
                wait: None,
            };
            metered.charge(headers);
            metered
        })
    }
}

fn bytes_of(headers: &HeaderMap) -> usize {
    /// As HTTP/2 counts an entry.
    const ENTRY_BYTES: usize = 32;
    let entries = headers.iter();
    entries
        .map(|(name, value)| name.as_str().len() + value.len() + ENTRY_BYTES)
        .sum()
}

/// A request body; dropping it returns its share of the budget.
pub(super) struct Metered<B> {
    inner: B,
    budget: Budget,
    /// The bound of all requests, as it is for this caller.
    max: usize,
    /// Bytes of the body; in a stream of requests, of the message that is not complete yet.
    received: usize,
    /// The part of `charged` for the headers, which stay until the end of the call.
    headers: usize,
    charged: usize,
    exhausted: bool,
    method: String,
    progress: Progress,
    /// The wait for the rest. Created when the body first waits.
    wait: Option<Wait>,
}

struct Wait {
    began: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl<B> Metered<B> {
    fn receive(&mut self, data: &[u8]) {
        let messages = self.progress.whole_messages;
        let was_between = self.progress.is_between_messages();
        self.progress.advance(data);
        let begins = was_between || self.progress.whole_messages > messages;
        let matters = self.wait.is_some() || self.received + data.len() > FREE_BYTES;
        let mut bytes = data.len();
        if begins && matters && streams_requests(&self.method) {
            // Each message of a stream is passed on before the next is read. A piece may have the
            // end of one message and the beginning of another, which counts anew.
            self.release(self.charged - self.headers);
            self.received = 0;
            bytes = self.progress.bytes_of_unfinished();
            if let Some(wait) = &mut self.wait {
                wait.began = Instant::now();
            }
        }
        let free_before = self.received.min(FREE_BYTES);
        self.received += bytes;
        let free = self.received.min(FREE_BYTES) - free_before;
        self.charge(bytes - free);
    }

    fn release(&mut self, bytes: usize) {
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
        self.charged -= bytes;
    }

    fn charge(&mut self, bytes: usize) {
        let before = self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        self.charged += bytes;
        self.exhausted |= bytes > 0 && before + bytes > self.max;
    }

    fn check(&self) -> Result<(), Status> {
        if self.exhausted {
            return Err(Status::resource_exhausted(
                "the node receives too many large messages at once; try again in a moment",
            ));
        }
        Ok(())
    }

    /// Resolves when the request should have been complete: a call that never begins would keep
    /// its connection from being closed for another.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        let timeout = self.budget.connections.limits().request_timeout;
        let timeout = timeout.min(MAX_TIMEOUT);
        let allowed = Duration::from_secs((self.received / MIN_BYTES_PER_SECOND) as u64) + timeout;
        let wait = self.wait.get_or_insert_with(|| {
            let began = Instant::now();
            Wait {
                began,
                sleep: Box::pin(tokio::time::sleep_until(began + timeout)),
            }
        });
        while wait.sleep.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if now < wait.began + allowed {
                wait.sleep.as_mut().reset(wait.began + allowed);
            } else if self.progress.is_between_messages() && streams_requests(&self.method) {
                // The next message may take as long as the client likes.
                wait.began = now;
                wait.sleep.as_mut().reset(now + timeout);
            } else {
                return Poll::Ready(Status::deadline_exceeded(format!(
                    "the request was not complete within {}",
                    humantime::format_duration(allowed)
                )));
            }
        }
        Poll::Pending
    }
}

impl<B> Drop for Metered<B> {
    fn drop(&mut self) {
        self.release(self.charged);
    }
}

impl<B> Body for Metered<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Err(status) = self.check() {
            return Poll::Ready(Some(Err(status)));
        }
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.receive(data);
                }
                Poll::Ready(Some(self.check().map(|()| frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                Poll::Ready(Some(Err(Status::from_error(error.into()))))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => self.poll_overdue(cx).map(|status| Some(Err(status))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The position in the gRPC messages of a body.
#[derive(Debug, Default, PartialEq, Eq)]
struct Progress {
    whole_messages: u64,
    head: [u8; HEAD],
    head_bytes: usize,
    /// The length of a message whose header is complete.
    length: usize,
    /// Bytes missing of a message whose header is complete.
    missing: usize,
}

impl Progress {
    fn advance(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            if self.head_bytes < HEAD {
                let taken = data.len().min(HEAD - self.head_bytes);
                self.head[self.head_bytes..][..taken].copy_from_slice(&data[..taken]);
                self.head_bytes += taken;
                data = &data[taken..];
                if self.head_bytes == HEAD {
                    let mut length = &self.head[1..];
                    self.length = length.get_u32() as usize;
                    self.missing = self.length;
                }
            }
            let taken = data.len().min(self.missing);
            self.missing -= taken;
            data = &data[taken..];
            if self.head_bytes == HEAD && self.missing == 0 {
                self.head_bytes = 0;
                self.whole_messages += 1;
            }
        }
    }

    /// Returns the bytes received of a message that is not complete, its header included.
    fn bytes_of_unfinished(&self) -> usize {
        match self.head_bytes {
            HEAD => HEAD + self.length - self.missing,
            part => part,
        }
    }

    fn is_between_messages(&self) -> bool {
        self.whole_messages > 0 && self.head_bytes == 0
    }
}

/// True for a method whose client sends any number of messages.
fn streams_requests(method: &str) -> bool {
    static METHODS: OnceLock<HashSet<String>> = OnceLock::new();
    let find =
        || {
            let sets = [
                mainstay_api::FILE_DESCRIPTOR_SET,
                tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
                tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
            ];
            let mut methods = HashSet::new();
            for set in sets {
                let set = prost_types::FileDescriptorSet::decode(set).unwrap_or_default();
                for file in set.file {
                    for service in &file.service {
                        let streaming = service.method.iter().filter(|m| m.client_streaming());
                        methods.extend(streaming.map(|m| {
                            format!("/{}.{}/{}", file.package(), service.name(), m.name())
                        }));
                    }
                }
            }
            methods
        };
    METHODS.get_or_init(find).contains(method)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::ConnectionLimits;
    use futures_util::stream;
    use http_body_util::{BodyExt, StreamBody};
    use proptest::prelude::*;

    #[test]
    fn reflection_streams_requests_and_logs_does_not() {
        for version in ["v1", "v1alpha"] {
            let method =
                format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
            assert!(streams_requests(&method), "{method}");
        }
        assert!(!streams_requests("/machine.MachineService/Logs"));
    }

    const STREAMING: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    const UNARY: &str = "/machine.MachineService/Version";

    fn budget(request_timeout: Duration) -> Budget {
        Budget::new(&Connections::new(ConnectionLimits {
            connections: 1,
            connections_per_client: 1,
            handshake_timeout: request_timeout,
            request_timeout,
        }))
    }

    fn message(length: usize) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
        bytes.resize(HEAD + length, 7);
        bytes
    }

    #[tokio::test]
    async fn a_stream_counts_for_its_unfinished_message_wherever_its_pieces_end() {
        const LENGTH: usize = 3 * FREE_BYTES;
        let bytes = message(LENGTH).repeat(20);
        for piece in [LENGTH / 2, LENGTH, LENGTH + HEAD, 2 * LENGTH] {
            let pieces: Vec<_> = bytes
                .chunks(piece)
                .map(|piece| Ok::<_, Status>(Frame::data(Bytes::copy_from_slice(piece))))
                .collect();
            let body = StreamBody::new(stream::iter(pieces));
            let budget = budget(Duration::from_secs(60));
            let request = Request::builder().uri(STREAMING).body(body).unwrap();
            let mut body = budget.meter(request).into_body();
            while let Some(frame) = body.frame().await {
                frame.unwrap();
                let used = budget.used.load(Ordering::Relaxed);
                assert!(used < HEAD + LENGTH, "{used} with pieces of {piece}");
            }
            drop(body);
            assert_eq!(budget.used.load(Ordering::Relaxed), 0);
        }
    }

    #[tokio::test]
    async fn messages_after_the_first_do_not_extend_a_request_of_one() {
        let every = tokio::time::interval(Duration::from_millis(5));
        let endless = stream::unfold(every, |mut every| async {
            every.tick().await;
            let frame = Frame::data(Bytes::from(message(0)));
            Some((Ok::<_, Status>(frame), every))
        });
        let body = StreamBody::new(Box::pin(endless));
        let request = Request::builder().uri(UNARY).body(body).unwrap();
        let mut body = budget(Duration::from_millis(50)).meter(request).into_body();
        let ended = loop {
            if let Some(Err(status)) = body.frame().await {
                break status;
            }
        };
        assert_eq!(ended.code(), tonic::Code::DeadlineExceeded);
    }

    proptest! {
        #[test]
        fn progress_does_not_depend_on_the_pieces(
            messages in proptest::collection::vec(0..40_usize, 1..6),
            cut in 0..300_usize,
            piece in 1..9_usize,
        ) {
            let mut bytes = Vec::new();
            for length in &messages {
                bytes.push(0);
                bytes.extend_from_slice(&u32::try_from(*length).unwrap().to_be_bytes());
                bytes.extend(std::iter::repeat_n(7, *length));
            }
            let whole = bytes.len();
            bytes.truncate(cut);
            let mut progress = Progress::default();
            for piece in bytes.chunks(piece) {
                progress.advance(piece);
            }
            let mut at_once = Progress::default();
            at_once.advance(&bytes);
            prop_assert_eq!(progress.is_between_messages(), at_once.is_between_messages());
            prop_assert_eq!(progress.whole_messages, at_once.whole_messages);
            let complete = usize::try_from(progress.whole_messages).unwrap();
            let complete: usize = messages[..complete].iter().map(|length| HEAD + length).sum();
            prop_assert_eq!(progress.bytes_of_unfinished(), bytes.len() - complete);
            if cut >= whole {
                prop_assert!(progress.is_between_messages());
                prop_assert_eq!(progress.whole_messages, messages.len() as u64);
            }
        }
    }
}
