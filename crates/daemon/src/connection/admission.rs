//! Limits on connections, in all and per client, and eviction.
//!
//! At a limit, the connection that has been idle longest is closed for the new one; a connection
//! with a running call is never closed. A client that opens thousands of connections therefore
//! only closes its own, and all others are served.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Limits on connections, in force from the next connection on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    pub connections: usize,
    pub connections_per_client: usize,
    pub handshake_timeout: Duration,
}

/// The client a connection counts for: an address until the handshake identifies it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Client {
    Address(IpAddr),
    Certificate(Arc<str>),
    User(u32),
    /// A caller named by a node that forwards for it; never the client of a connection.
    Forwarded(Arc<str>),
}

#[derive(Debug)]
pub struct Connections {
    table: Mutex<Table>,
    began: Instant,
    /// Signalled whenever a connection is closed.
    pub freed: Notify,
}

#[derive(Debug)]
struct Table {
    limits: ConnectionLimits,
    next_id: u64,
    slots: HashMap<u64, Slot>,
}

#[derive(Debug)]
struct Slot {
    client: Client,
    activity: Arc<Activity>,
}

/// Running and past calls of one connection, by which connections are chosen for eviction.
#[derive(Debug)]
struct Activity {
    calls: AtomicUsize,
    last_used_ms: AtomicU64,
    evicted: CancellationToken,
}

/// One admitted connection; dropping it frees its slot.
#[derive(Debug)]
pub struct Ticket {
    connections: Arc<Connections>,
    id: u64,
    activity: Arc<Activity>,
}

/// One running call; while it exists its connection is not idle.
#[derive(Debug)]
pub struct CallGuard {
    connections: Arc<Connections>,
    activity: Arc<Activity>,
}

impl Connections {
    pub fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::new(Table {
                limits,
                next_id: 0,
                slots: HashMap::new(),
            }),
            began: Instant::now(),
            freed: Notify::new(),
        })
    }

    pub fn set_limits(&self, limits: ConnectionLimits) {
        self.lock().limits = limits;
    }

    pub fn limits(&self) -> ConnectionLimits {
        self.lock().limits
    }

    /// Admits a new connection; `None` when every slot has a running call.
    pub fn admit(self: &Arc<Self>, client: Client) -> Option<Ticket> {
        let mut table = self.lock();
        if !table.free_slot(&client) {
            return None;
        }
        let activity = Arc::new(Activity {
            calls: AtomicUsize::new(0),
            last_used_ms: AtomicU64::new(self.now_ms()),
            evicted: CancellationToken::new(),
        });
        let id = table.next_id;
        table.next_id += 1;
        table.slots.insert(
            id,
            Slot {
                client,
                activity: Arc::clone(&activity),
            },
        );
        Some(Ticket {
            connections: Arc::clone(self),
            id,
            activity,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Table {
    fn free_slot(&mut self, client: &Client) -> bool {
        let own = self
            .slots
            .values()
            .filter(|slot| slot.client == *client)
            .count();
        if own >= self.limits.connections_per_client {
            return self.evict(|slot| slot.client == *client);
        }
        if self.slots.len() >= self.limits.connections {
            // Identified clients are evicted last.
            return self.evict(|slot| matches!(slot.client, Client::Address(_)))
                || self.evict(|_| true);
        }
        true
    }

    /// Closes the longest idle connection among those `wanted`.
    fn evict(&mut self, wanted: impl Fn(&Slot) -> bool) -> bool {
        let idle = self
            .slots
            .iter()
            .filter(|(_, slot)| wanted(slot) && slot.activity.calls.load(Ordering::Relaxed) == 0)
            .min_by_key(|(id, slot)| (slot.activity.last_used_ms.load(Ordering::Relaxed), **id))
            .map(|(id, _)| *id);
        match idle.and_then(|id| self.slots.remove(&id)) {
            Some(slot) => {
                slot.activity.evicted.cancel();
                true
            }
            None => false,
        }
    }
}

impl Ticket {
    /// Counts the connection for the client that the handshake has identified. Returns `false`
    /// when every slot of that client has a running call.
    pub fn identify(&self, client: Client) -> bool {
        let mut table = self.connections.lock();
        // Removed first, so that it never evicts itself. An evicted one stays removed.
        let Some(slot) = table.slots.remove(&self.id) else {
            return false;
        };
        if !table.free_slot(&client) {
            return false;
        }
        table.slots.insert(
            self.id,
            Slot {
                client,
                activity: slot.activity,
            },
        );
        true
    }

    /// Resolves when the connection is evicted.
    pub async fn evicted(&self) {
        self.activity.evicted.cancelled().await;
    }

    /// Returns whether no call runs.
    pub fn is_idle(&self) -> bool {
        self.activity.calls.load(Ordering::Relaxed) == 0
    }

    /// Marks the connection as busy until the guard is dropped.
    pub fn call(&self) -> CallGuard {
        self.activity.calls.fetch_add(1, Ordering::Relaxed);
        CallGuard {
            connections: Arc::clone(&self.connections),
            activity: Arc::clone(&self.activity),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.connections.lock().slots.remove(&self.id);
        self.connections.freed.notify_one();
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.activity
            .last_used_ms
            .store(self.connections.now_ms(), Ordering::Relaxed);
        self.activity.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn limits(connections: usize, connections_per_client: usize) -> ConnectionLimits {
        ConnectionLimits {
            connections,
            connections_per_client,
            handshake_timeout: Duration::from_secs(1),
        }
    }

    fn client(n: u8) -> Client {
        Client::Address(IpAddr::V4(Ipv4Addr::new(127, 0, 0, n)))
    }

    fn is_evicted(ticket: &Ticket) -> bool {
        ticket.activity.evicted.is_cancelled()
    }

    #[test]
    fn a_client_at_its_limit_evicts_its_own_longest_idle_connection() {
        let all = Connections::new(limits(10, 2));
        let other = all.admit(client(9)).unwrap();
        let first = all.admit(client(1)).unwrap();
        let second = all.admit(client(1)).unwrap();
        let third = all.admit(client(1)).unwrap();
        assert!(is_evicted(&first));
        assert!(!is_evicted(&second) && !is_evicted(&third) && !is_evicted(&other));
    }

    #[test]
    fn a_connection_with_a_running_call_is_never_evicted() {
        let all = Connections::new(limits(10, 1));
        let busy = all.admit(client(1)).unwrap();
        let call = busy.call();
        assert!(all.admit(client(1)).is_none());
        assert!(!is_evicted(&busy));
        drop(call);
        assert!(all.admit(client(1)).is_some());
        assert!(is_evicted(&busy));
    }

    #[test]
    fn a_full_node_evicts_the_longest_idle_connection() {
        let all = Connections::new(limits(2, 2));
        let first = all.admit(client(1)).unwrap();
        let second = all.admit(client(2)).unwrap();
        let third = all.admit(client(3)).unwrap();
        assert!(is_evicted(&first) && !is_evicted(&second) && !is_evicted(&third));
    }

    #[test]
    fn after_the_handshake_a_connection_counts_for_its_certificate() {
        let all = Connections::new(limits(10, 1));
        let alice = || Client::Certificate("alice".into());
        let first = all.admit(client(1)).unwrap();
        assert!(first.identify(alice()));
        let second = all.admit(client(1)).unwrap();
        assert!(!is_evicted(&first), "it no longer counts for the address");
        assert!(second.identify(alice()));
        assert!(is_evicted(&first));
    }

    #[test]
    fn a_closed_connection_frees_its_slot() {
        let all = Connections::new(limits(1, 1));
        for _ in 0..5 {
            let ticket = all.admit(client(1)).unwrap();
            assert!(!is_evicted(&ticket));
        }
        assert!(all.lock().slots.is_empty());
    }
}
