//! Limits on connections, in all and per client, and eviction.
//!
//! At a limit, the connection that has been idle longest is closed for the new one; a connection
//! with a running call is never closed. A client that opens thousands of connections therefore
//! only closes its own, and all others are served. Connections with running calls leave some slots
//! to administrators and the unix socket, so that nobody can lock them out.

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
    pub request_timeout: Duration,
}

/// The slots that only privileged connections, and handshakes, may take: this part of all, within
/// these bounds.
const RESERVED_PART: usize = 8;
const MAX_RESERVED: usize = 64;
/// The listener that authenticates nobody gets this part of all slots.
const ANONYMOUS_PART: usize = 4;

/// The entitlement of a connection when slots are scarce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Not identified yet; short-lived.
    Handshake,
    /// Identified by nothing but its UID, on the plain loopback listener.
    Anonymous,
    Ordinary,
    /// An administrator, a node, or on the unix socket.
    Privileged,
}

/// The client a connection counts for: an address until the handshake identifies it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Client {
    Address(IpAddr),
    Certificate(Arc<str>),
    User(u32),
    /// A UID on the plain loopback listener, however many addresses it connects from; none where
    /// the kernel does not tell.
    Loopback(Option<u32>),
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
    standing: Standing,
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
    pub fn admit(self: &Arc<Self>, client: Client, standing: Standing) -> Option<Ticket> {
        let mut table = self.lock();
        if !table.free_slot(&client, standing) {
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
                standing,
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
    fn free_slot(&mut self, client: &Client, standing: Standing) -> bool {
        use Standing::{Anonymous, Handshake, Privileged};
        if self.count(|slot| slot.client == *client) >= self.limits.connections_per_client {
            return self.evict(|slot| slot.client == *client);
        }
        let all = self.limits.connections;
        let is_anonymous = |slot: &Slot| slot.standing == Anonymous;
        if standing == Anonymous && self.count(is_anonymous) >= (all / ANONYMOUS_PART).max(1) {
            return self.evict(is_anonymous);
        }
        let may_reserve = |standing: Standing| matches!(standing, Handshake | Privileged);
        if !may_reserve(standing) {
            let reserved = (all / RESERVED_PART).min(MAX_RESERVED);
            let is_unreserved = |slot: &Slot| !may_reserve(slot.standing);
            if self.count(is_unreserved) >= (all - reserved).max(1) {
                return self.evict(is_unreserved);
            }
        }
        if self.slots.len() >= all {
            // Identified clients are evicted last.
            return self.evict(|slot| slot.standing == Handshake)
                || self.evict(is_anonymous)
                || self.evict(|_| true);
        }
        true
    }

    fn count(&self, wanted: impl Fn(&Slot) -> bool) -> usize {
        self.slots.values().filter(|slot| wanted(slot)).count()
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
    pub fn identify(&self, client: Client, standing: Standing) -> bool {
        let mut table = self.connections.lock();
        // Removed first, so that it never evicts itself. An evicted one stays removed.
        let Some(slot) = table.slots.remove(&self.id) else {
            return false;
        };
        if !table.free_slot(&client, standing) {
            return false;
        }
        table.slots.insert(
            self.id,
            Slot {
                client,
                standing,
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
            request_timeout: Duration::from_secs(1),
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
        let other = all.admit(client(9), Standing::Handshake).unwrap();
        let first = all.admit(client(1), Standing::Handshake).unwrap();
        let second = all.admit(client(1), Standing::Handshake).unwrap();
        let third = all.admit(client(1), Standing::Handshake).unwrap();
        assert!(is_evicted(&first));
        assert!(!is_evicted(&second) && !is_evicted(&third) && !is_evicted(&other));
    }

    #[test]
    fn a_connection_with_a_running_call_is_never_evicted() {
        let all = Connections::new(limits(10, 1));
        let busy = all.admit(client(1), Standing::Handshake).unwrap();
        let call = busy.call();
        assert!(all.admit(client(1), Standing::Handshake).is_none());
        assert!(!is_evicted(&busy));
        drop(call);
        assert!(all.admit(client(1), Standing::Handshake).is_some());
        assert!(is_evicted(&busy));
    }

    #[test]
    fn a_full_node_evicts_the_longest_idle_connection() {
        let all = Connections::new(limits(2, 2));
        let first = all.admit(client(1), Standing::Handshake).unwrap();
        let second = all.admit(client(2), Standing::Handshake).unwrap();
        let third = all.admit(client(3), Standing::Handshake).unwrap();
        assert!(is_evicted(&first) && !is_evicted(&second) && !is_evicted(&third));
    }

    #[test]
    fn after_the_handshake_a_connection_counts_for_its_certificate() {
        let all = Connections::new(limits(10, 1));
        let alice = || Client::Certificate("alice".into());
        let first = all.admit(client(1), Standing::Handshake).unwrap();
        assert!(first.identify(alice(), Standing::Ordinary));
        let second = all.admit(client(1), Standing::Handshake).unwrap();
        assert!(!is_evicted(&first), "it no longer counts for the address");
        assert!(second.identify(alice(), Standing::Ordinary));
        assert!(is_evicted(&first));
    }

    #[test]
    fn a_closed_connection_frees_its_slot() {
        let all = Connections::new(limits(1, 1));
        for _ in 0..5 {
            let ticket = all.admit(client(1), Standing::Handshake).unwrap();
            assert!(!is_evicted(&ticket));
        }
        assert!(all.lock().slots.is_empty());
    }

    fn admit_busy(
        all: &Arc<Connections>,
        name: &str,
        standing: Standing,
    ) -> Option<(Ticket, CallGuard)> {
        let ticket = all.admit(client(1), Standing::Handshake)?;
        let identified = ticket.identify(Client::Certificate(name.into()), standing);
        let call = ticket.call();
        identified.then_some((ticket, call))
    }

    #[test]
    fn running_calls_of_others_leave_slots_to_the_privileged() {
        let all = Connections::new(limits(16, 100));
        let busy: Vec<_> = (0..16)
            .map_while(|_| admit_busy(&all, "reader", Standing::Ordinary))
            .collect();
        assert_eq!(busy.len(), 14);
        assert!(admit_busy(&all, "other", Standing::Ordinary).is_none());
        let _admin = admit_busy(&all, "admin", Standing::Privileged).unwrap();
        let _root = all.admit(Client::User(0), Standing::Privileged).unwrap();
        assert!(busy.iter().all(|(ticket, _)| !is_evicted(ticket)));
    }

    #[test]
    fn anonymous_connections_get_a_part_of_the_slots_and_evict_each_other() {
        let all = Connections::new(limits(16, 100));
        let known = all.admit(Client::Certificate("a".into()), Standing::Ordinary);
        let anonymous: Vec<_> = (0..10)
            .map(|uid| {
                let client = Client::Loopback(Some(uid));
                all.admit(client, Standing::Anonymous).unwrap()
            })
            .collect();
        assert_eq!(
            anonymous
                .iter()
                .filter(|ticket| !is_evicted(ticket))
                .count(),
            4
        );
        assert!(!is_evicted(&known.unwrap()));
    }
}
