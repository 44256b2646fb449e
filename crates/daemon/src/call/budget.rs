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
use hyper::body::Incoming;
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

    pub(super) fn meter(&self, request: Request<Incoming>) -> Request<Metered> {
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
pub(super) struct Metered {
    inner: Incoming,
    budget: Budget,
    /// The bound of all requests, as it is for this caller.
    max: usize,
    received: usize,
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

impl Metered {
    fn receive(&mut self, bytes: usize) {
        let free_before = self.received.min(FREE_BYTES);
        self.received += bytes;
        let free = self.received.min(FREE_BYTES) - free_before;
        self.charge(bytes - free);
        if self.charged > 0 && self.progress.is_between_messages() && streams_requests(&self.method)
        {
            // Each message of a stream is passed on before the next is read.
            self.budget.used.fetch_sub(self.charged, Ordering::Relaxed);
            self.charged = 0;
            self.received = 0;
        }
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

impl Drop for Metered {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.charged, Ordering::Relaxed);
    }
}

impl Body for Metered {
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
                let data = frame.data_ref();
                if let Some(data) = data {
                    let idle = self.progress.is_between_messages();
                    self.progress.advance(data);
                    if idle && let Some(wait) = &mut self.wait {
                        wait.began = Instant::now();
                    }
                }
                let bytes = data.map_or(0, Buf::remaining);
                self.receive(bytes);
                Poll::Ready(Some(self.check().map(|()| frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                Poll::Ready(Some(Err(Status::from_error(Box::new(error)))))
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
                    self.missing = length.get_u32() as usize;
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

    fn is_between_messages(&self) -> bool {
        self.whole_messages > 0 && self.head_bytes == 0
    }
}

/// True for a method whose client sends any number of messages. Looked up only when a request is
/// overdue.
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
            if cut >= whole {
                prop_assert!(progress.is_between_messages());
                prop_assert_eq!(progress.whole_messages, messages.len() as u64);
            }
        }
    }
}
