//! The limits of forwarded calls: memory, connection attempts and responses of this node itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tonic::Status;

use crate::dial::Unreachable;
use crate::quota::{Account, Bounds, Charge, Exhausted, Quota, Use};

/// Responses in memory, of all calls: being received, merged, or not read by their caller yet.
const BYTES: Bounds = Bounds {
    shared: 128 << 20,
    streams: 96 << 20,
    reserved: 64 << 20,
    per_caller: 64 << 20,
};
/// Connection attempts of all calls.
const DIALS: Bounds = Bounds {
    shared: 256,
    streams: 256,
    reserved: 64,
    per_caller: 128,
};
/// Responses of this node to calls that name it; each takes a thread while it reads.
const LOCAL: Bounds = Bounds {
    shared: 96,
    streams: 64,
    reserved: 32,
    per_caller: 32,
};
const DIALS_PER_CALL: usize = 64;
const LOCAL_PER_CALL: usize = 4;
/// Memory of a call per node that it names, its error message included.
const BYTES_PER_NODE: usize = 2 << 10;
/// Buffers of a stream of this node.
pub(crate) const LOCAL_STREAM_BYTES: usize = 64 << 10;
/// The time that one call waits for memory, all its nodes together.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(2);
/// The time that a stream of this node waits for the earlier ones of its call.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(5);

/// The limits over all calls.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    bytes: Quota,
    dials: Quota,
    local: Quota,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: Quota::new(BYTES),
            dials: Quota::new(DIALS),
            local: Quota::new(LOCAL),
        }
    }
}

/// The limits of one call, and its part of those over all calls. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct CallLimits(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    all: Limits,
    account: Account,
    used_for: Use,
    dialing: Arc<Semaphore>,
    local: Arc<Semaphore>,
    /// Set by the first response that finds no memory; then the call waits no longer than this.
    /// Locked while waiting, so that the responses of a call wait one after the other.
    memory_deadline: Mutex<Option<Instant>>,
    /// For what the call needs besides the responses.
    _own: Charge,
}

/// Permission to connect to a node.
#[derive(Debug)]
pub(crate) struct DialPermit {
    _call: OwnedSemaphorePermit,
    _all: Charge,
}

/// Permission for this node to answer.
#[derive(Debug)]
pub(crate) struct LocalPermit {
    _call: OwnedSemaphorePermit,
    _all: Charge,
}

impl Limits {
    /// Starts a call that names so many nodes.
    pub(crate) fn call(
        &self,
        account: &Account,
        used_for: Use,
        nodes: usize,
    ) -> Result<CallLimits, Status> {
        let own = self
            .bytes
            .take(account, used_for, nodes * BYTES_PER_NODE)
            .map_err(no_memory)?;
        Ok(CallLimits(Arc::new(Inner {
            all: self.clone(),
            account: account.clone(),
            used_for,
            dialing: Arc::new(Semaphore::new(DIALS_PER_CALL)),
            local: Arc::new(Semaphore::new(LOCAL_PER_CALL)),
            memory_deadline: Mutex::new(None),
            _own: own,
        })))
    }
}

impl CallLimits {
    /// Reserves memory for a response or a part of it.
    pub(crate) async fn memory(&self, bytes: usize) -> Result<Charge, Status> {
        let inner = &*self.0;
        let free = || inner.all.bytes.take(&inner.account, inner.used_for, bytes);
        if let Ok(charge) = free() {
            return Ok(charge);
        }
        let mut waiting = inner.memory_deadline.lock().await;
        let deadline = *waiting.get_or_insert_with(|| Instant::now() + MEMORY_TIMEOUT);
        let left = deadline.saturating_duration_since(Instant::now());
        let bytes = inner
            .all
            .bytes
            .wait(&inner.account, inner.used_for, bytes, left);
        let charge = bytes.await.map_err(no_memory)?;
        *waiting = None;
        Ok(charge)
    }

    /// Waits for permission to connect, no longer than `timeout`.
    pub(crate) async fn dial(&self, timeout: Duration) -> Result<DialPermit, Unreachable> {
        let inner = &*self.0;
        let permits = async {
            let call = Arc::clone(&inner.dialing).acquire_owned().await.ok()?;
            let all = inner.all.dials.clone();
            let all = all.wait(&inner.account, inner.used_for, 1, timeout).await;
            Some(DialPermit {
                _call: call,
                _all: all.ok()?,
            })
        };
        match tokio::time::timeout(timeout, permits).await {
            Ok(Some(permit)) => Ok(permit),
            _ => Err(Unreachable::because(
                "too many connections are being opened at once; name fewer nodes in a call",
            )),
        }
    }

    /// Waits for the turn of a response of this node.
    pub(crate) async fn local(&self) -> Result<LocalPermit, Status> {
        let inner = &*self.0;
        let permits = async {
            let call = Arc::clone(&inner.local).acquire_owned().await.ok()?;
            let all = &inner.all.local;
            let all = all.wait(&inner.account, inner.used_for, 1, Duration::MAX);
            Some(LocalPermit {
                _call: call,
                _all: all.await.ok()?,
            })
        };
        let permit = match inner.used_for {
            // Bounded by the timeout of the call.
            Use::Unary => permits.await,
            Use::Stream => tokio::time::timeout(LOCAL_TIMEOUT, permits)
                .await
                .unwrap_or_default(),
        };
        permit.ok_or_else(|| {
            Status::resource_exhausted(format!(
                "this node already streams {LOCAL_PER_CALL} times in this call or too often to \
                 this caller; name it once"
            ))
        })
    }
}

// By value, as `map_err` passes it.
#[allow(clippy::needless_pass_by_value)]
fn no_memory(exhausted: Exhausted) -> Status {
    Status::resource_exhausted(format!(
        "the responses to {exhausted} together take too much memory on the forwarding node; read \
         them, name fewer nodes in a call, or retry in a moment"
    ))
}
