//! A bound on parallel work over all callers, with a fair share for each.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::connection::Client;
use crate::requester::Requester;

/// Slots for work that may hang. A caller never holds more than its share, so the hung work of
/// one never blocks another's; some slots are reserved for privileged callers.
#[derive(Debug)]
pub struct Slots {
    bounds: Bounds,
    held: Mutex<Option<Held>>,
}

#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// For all callers together, without the reserve.
    pub shared: usize,
    /// Beyond that, for privileged callers only.
    pub reserved: usize,
    pub per_caller: usize,
}

#[derive(Debug, Default)]
struct Held {
    total: usize,
    by_client: HashMap<Client, usize>,
}

/// One slot; dropping it frees it.
#[derive(Debug)]
pub struct Slot {
    slots: &'static Slots,
    client: Client,
}

/// The reason that no slot is free.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exhausted {
    #[error("this caller already has {0} of them running")]
    Caller(usize),
    #[error("all callers together already have {0} of them running")]
    Node(usize),
}

impl Slots {
    pub const fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            held: Mutex::new(None),
        }
    }

    pub fn take(&'static self, requester: Requester) -> Result<Slot, Exhausted> {
        let mut held = self.lock();
        let held = held.get_or_insert_default();
        let own = held.by_client.get(&requester.client).copied().unwrap_or(0);
        if own >= self.bounds.per_caller {
            return Err(Exhausted::Caller(own));
        }
        let reserved = if requester.privileged {
            self.bounds.reserved
        } else {
            0
        };
        if held.total >= self.bounds.shared + reserved {
            return Err(Exhausted::Node(held.total));
        }
        held.total += 1;
        held.by_client.insert(requester.client.clone(), own + 1);
        Ok(Slot {
            slots: self,
            client: requester.client,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut held = self.slots.lock();
        let Some(held) = held.as_mut() else { return };
        held.total -= 1;
        if let Some(own) = held.by_client.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                held.by_client.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        shared: 4,
        reserved: 2,
        per_caller: 3,
    };

    fn user(uid: u32, privileged: bool) -> Requester {
        Requester {
            client: Client::User(uid),
            privileged,
            role: None,
            who: "test".into(),
            serial: None,
        }
    }

    fn slots() -> &'static Slots {
        Box::leak(Box::new(Slots::new(BOUNDS)))
    }

    #[test]
    fn a_caller_at_its_share_does_not_block_another() {
        let slots = slots();
        let _hung: Vec<_> = (0..3)
            .map(|_| slots.take(user(1, false)).unwrap())
            .collect();
        assert_eq!(
            slots.take(user(1, false)).unwrap_err(),
            Exhausted::Caller(3)
        );
        slots.take(user(2, false)).unwrap();
    }

    #[test]
    fn a_privileged_caller_gets_in_when_the_others_have_taken_everything() {
        let slots = slots();
        let _hung: Vec<_> = (0..4)
            .map(|uid| slots.take(user(uid, false)).unwrap())
            .collect();
        assert_eq!(slots.take(user(9, false)).unwrap_err(), Exhausted::Node(4));
        let _admin: Vec<_> = (0..2)
            .map(|_| slots.take(user(100, true)).unwrap())
            .collect();
        assert_eq!(slots.take(user(101, true)).unwrap_err(), Exhausted::Node(6));
    }

    #[test]
    fn a_dropped_slot_is_free_again_and_leaves_nothing_behind() {
        let slots = slots();
        for _ in 0..10 {
            drop(slots.take(user(1, false)).unwrap());
        }
        let held = slots.lock();
        let held = held.as_ref().unwrap();
        assert!(held.total == 0 && held.by_client.is_empty());
    }
}
