//! A bound on the memory of unary answers that their callers do not read. Streams need none: they are
//! produced as they are read.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;

use bytes::Bytes;
use http::Response;
use http_body::{Body as _, Frame};
use prost::Message;
use tonic::Status;
use tonic::body::Body;

use crate::connection::Client;
use crate::requester::Requester;

/// For all callers together.
const MAX_BYTES: usize = 128 << 20;
/// Beyond that, for administrators and local users.
const RESERVED_BYTES: usize = 64 << 20;
const BYTES_PER_CALLER: usize = 64 << 20;
/// Smaller answers do not count.
const FREE_BYTES: usize = 64 << 10;

/// The answers that are not read yet. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Unread(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    total: usize,
    by_client: HashMap<Client, usize>,
}

/// The encoded beginning of an answer; it counts until this is dropped.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) frame: Option<Frame<Bytes>>,
    _charge: Option<Charge>,
}

#[derive(Debug)]
struct Charge {
    unread: Unread,
    client: Client,
    bytes: usize,
}

impl Unread {
    /// Encodes the answer of a unary method now, so that its size is known: HTTP/2 encodes it when
    /// the client grants a window, which may be never.
    pub(super) async fn encode(
        &self,
        method: &str,
        requester: &Requester,
        response: &mut Response<Body>,
    ) -> Result<Option<Encoded>, Status> {
        if response.headers().contains_key(Status::GRPC_STATUS) || !is_unary(method) {
            return Ok(None);
        }
        let body = response.body_mut();
        // An answer of another node may not be there yet; its memory counts elsewhere.
        let polled =
            std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *body).poll_frame(cx))).await;
        let Poll::Ready(Some(frame)) = polled else {
            return Ok(None);
        };
        let frame = frame?;
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        let charge = if bytes > FREE_BYTES {
            Some(self.take(requester, bytes)?)
        } else {
            None
        };
        Ok(Some(Encoded {
            frame: Some(frame),
            _charge: charge,
        }))
    }

    fn take(&self, requester: &Requester, bytes: usize) -> Result<Charge, Status> {
        let reserved = if requester.privileged {
            RESERVED_BYTES
        } else {
            0
        };
        let mut held = self.lock();
        let own = held.by_client.get(&requester.client).copied().unwrap_or(0) + bytes;
        if own > BYTES_PER_CALLER || held.total + bytes > MAX_BYTES + reserved {
            return Err(Status::resource_exhausted(
                "answers that are not read yet take too much memory; read them, or retry in a moment",
            ));
        }
        held.total += bytes;
        held.by_client.insert(requester.client.clone(), own);
        Ok(Charge {
            unread: self.clone(),
            client: requester.client.clone(),
            bytes,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut held = self.unread.lock();
        held.total -= self.bytes;
        if let Some(own) = held.by_client.get_mut(&self.client) {
            *own -= self.bytes;
            if *own == 0 {
                held.by_client.remove(&self.client);
            }
        }
    }
}

/// True for a method of the contract with one answer.
fn is_unary(method: &str) -> bool {
    static METHODS: OnceLock<HashSet<String>> = OnceLock::new();
    let find = || {
        let set = prost_types::FileDescriptorSet::decode(mainstay_api::FILE_DESCRIPTOR_SET);
        let mut methods = HashSet::new();
        for file in set.unwrap_or_default().file {
            for service in &file.service {
                let unary = service.method.iter().filter(|m| !m.server_streaming());
                methods.extend(
                    unary.map(|m| format!("/{}.{}/{}", file.package(), service.name(), m.name())),
                );
            }
        }
        methods
    };
    METHODS.get_or_init(find).contains(method)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;

    const UNARY: &str = "/machine.MachineService/Version";
    const LARGE: usize = 20 << 20;

    async fn answer(
        unread: &Unread,
        method: &str,
        (name, privileged): (&str, bool),
        bytes: usize,
    ) -> Result<Option<Encoded>, Status> {
        let requester = Requester {
            client: Client::Certificate(name.into()),
            privileged,
            role: None,
            who: "test".into(),
            serial: None,
        };
        let mut response = Response::new(Body::new(Full::new(Bytes::from(vec![0; bytes]))));
        unread.encode(method, &requester, &mut response).await
    }

    #[tokio::test]
    async fn unread_answers_are_bounded_for_each_caller_and_for_all() {
        let unread = Unread::default();
        let mut held = Vec::new();
        for name in ["a", "b"] {
            for _ in 0..3 {
                let encoded = answer(&unread, UNARY, (name, false), LARGE).await;
                held.push(encoded.unwrap().unwrap());
            }
            let refused = answer(&unread, UNARY, (name, false), LARGE).await;
            assert_eq!(refused.unwrap_err().code(), tonic::Code::ResourceExhausted);
        }
        assert!(answer(&unread, UNARY, ("c", false), LARGE).await.is_err());
        // Small ones are not refused, nor those of administrators.
        let small = answer(&unread, UNARY, ("a", false), FREE_BYTES).await;
        assert!(small.unwrap().is_some());
        assert!(answer(&unread, UNARY, ("d", true), LARGE).await.is_ok());
        held.pop();
        assert!(answer(&unread, UNARY, ("c", false), LARGE).await.is_ok());
        held.clear();
        let left = unread.lock();
        assert!(left.total == 0 && left.by_client.is_empty());
    }

    #[tokio::test]
    async fn streams_are_not_read_ahead() {
        let unread = Unread::default();
        let logs = "/machine.MachineService/Logs";
        let stream = answer(&unread, logs, ("a", false), LARGE).await;
        assert!(stream.unwrap().is_none());
    }
}
