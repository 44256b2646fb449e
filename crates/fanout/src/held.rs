//! A body that keeps something until it has been read or dropped.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

struct Held<T> {
    inner: Body,
    _held: T,
}

/// Returns the body with `held`, which is dropped together with it.
pub(crate) fn hold<T: Send + Unpin + 'static>(inner: Body, held: T) -> Body {
    Body::new(Held { inner, _held: held })
}

impl<T: Unpin> http_body::Body for Held<T> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
