//! The memory bound on unfinished requests, over all callers.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tonic::Status;

/// Three messages of the maximum size.
const MAX_BYTES: usize = 96 << 20;
/// Bytes that every call may send uncounted: ordinary requests never reach the budget.
const FREE_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Default)]
pub(super) struct Budget(Arc<AtomicUsize>);

impl Budget {
    pub(super) fn meter(&self, inner: Incoming) -> Metered {
        Metered {
            inner,
            budget: self.clone(),
            received: 0,
            charged: 0,
        }
    }
}

/// A request body; dropping it returns its share of the budget.
pub(super) struct Metered {
    inner: Incoming,
    budget: Budget,
    received: usize,
    charged: usize,
}

impl Metered {
    fn charge(&mut self, bytes: usize) -> Result<(), Status> {
        self.received += bytes;
        let due = self.received.saturating_sub(FREE_BYTES) - self.charged;
        let before = self.budget.0.fetch_add(due, Ordering::Relaxed);
        self.charged += due;
        if due > 0 && before + due > MAX_BYTES {
            return Err(Status::resource_exhausted(
                "the node receives too many large messages at once; try again in a moment",
            ));
        }
        Ok(())
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.charged, Ordering::Relaxed);
    }
}

impl Body for Metered {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Buf::remaining);
                Poll::Ready(Some(self.charge(bytes).map(|()| frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                Poll::Ready(Some(Err(Status::from_error(Box::new(error)))))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
