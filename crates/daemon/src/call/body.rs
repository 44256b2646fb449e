//! The body of an answer: it observes the status of the call, and ends open streams with a status
//! when the node stops.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::body::Body;
use tonic::{Code, Status};

use super::record::CallLog;
use super::unread::Encoded;
use crate::requester::Requester;

pub struct CallBody {
    inner: Body,
    begun: Begun,
    log: CallLog,
    stop: CancellationToken,
    /// Created when the stream first waits: a unary answer never pays for it.
    stopped: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    ended: bool,
}

/// The answer to a call that began, as far as it is known; empty for a refusal.
#[derive(Debug, Default)]
pub(super) struct Begun {
    /// A stream may begin work when it is read: a stream of this node merged with those of others
    /// begins only then. It counts for the caller too.
    pub(super) requester: Option<Requester>,
    /// Precedes the rest of the body.
    pub(super) encoded: Option<Encoded>,
}

/// Observes `response` to its end; an answer of headers only has ended already.
pub(super) fn watch(
    response: Response<Body>,
    begun: Begun,
    mut log: CallLog,
    stop: CancellationToken,
) -> Response<CallBody> {
    if let Some(code) = code_in(response.headers()) {
        log.end(code);
    } else if !response.status().is_success() {
        log.end(Code::Unknown);
    }
    response.map(|inner| CallBody {
        inner,
        begun,
        log,
        stop,
        stopped: None,
        ended: false,
    })
}

fn code_in(headers: &HeaderMap) -> Option<Code> {
    headers
        .get(Status::GRPC_STATUS)
        .map(|code| Code::from_bytes(code.as_bytes()))
}

impl HttpBody for CallBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        let inner = Pin::new(&mut this.inner);
        let encoded = this.begun.encoded.as_mut();
        let polled = match (
            encoded.and_then(|it| it.frame.take()),
            &this.begun.requester,
        ) {
            (Some(frame), _) => Poll::Ready(Some(Ok(frame))),
            (None, Some(requester)) => requester.poll(|| inner.poll_frame(cx)),
            (None, None) => inner.poll_frame(cx),
        };
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(code) = frame.trailers_ref().and_then(code_in) {
                    this.log.end(code);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                this.log.end(error.code());
                Poll::Ready(Some(Err(error)))
            }
            Poll::Ready(None) => {
                this.log.end(Code::Ok);
                Poll::Ready(None)
            }
            Poll::Pending => this.poll_stop(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended || !self.has_encoded() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.has_encoded() {
            return SizeHint::default();
        }
        self.inner.size_hint()
    }
}

impl CallBody {
    fn has_encoded(&self) -> bool {
        let encoded = self.begun.encoded.as_ref();
        encoded.is_some_and(|encoded| encoded.frame.is_some())
    }

    /// Ends a waiting stream with a status when the node stops, so that the client knows to retry,
    /// instead of with a broken connection.
    fn poll_stop(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let stop = &self.stop;
        let stopped = self
            .stopped
            .get_or_insert_with(|| Box::pin(stop.clone().cancelled_owned()));
        if stopped.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.ended = true;
        let status = Status::unavailable("the node is stopping; the stream can be resumed later");
        self.log.end(status.code());
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(match status.add_header(&mut trailers) {
            Ok(()) => Ok(Frame::trailers(trailers)),
            Err(error) => Err(error),
        }))
    }
}

impl std::fmt::Debug for CallBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallBody").finish_non_exhaustive()
    }
}
