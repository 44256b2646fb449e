//! Bounds over all calls together, with a fair share for each caller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// The caller that the resources of a call count for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub client: Arc<str>,
    /// Privileged callers may use the reserve.
    pub privileged: bool,
}

/// The purpose of a charge. Streams may stay open and unread for ever; a unary response
/// cannot, unless its caller does not read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Unary,
    Stream,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// For all callers together, without the reserve.
    pub(crate) shared: usize,
    /// The part of `shared` that streams may use.
    pub(crate) streams: usize,
    /// Beyond `shared`, for privileged callers only.
    pub(crate) reserved: usize,
    pub(crate) per_caller: usize,
}

/// A bounded resource. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Quota(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bounds: Bounds,
    held: Mutex<Held>,
    /// Signalled whenever something is released.
    released: Notify,
}

#[derive(Debug, Default)]
struct Held {
    total: usize,
    streams: usize,
    by_client: HashMap<Arc<str>, usize>,
}

/// A part of a quota; dropping it releases the part.
#[derive(Debug)]
pub(crate) struct Charge {
    quota: Quota,
    account: Account,
    used_for: Use,
    amount: usize,
}

/// The reason that a quota is exhausted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Exhausted {
    #[error("the calls of this caller")]
    Caller,
    #[error("the calls of all callers")]
    Node,
}

impl Quota {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self(Arc::new(Inner {
            bounds,
            held: Mutex::default(),
            released: Notify::new(),
        }))
    }

    pub(crate) fn take(
        &self,
        account: &Account,
        used_for: Use,
        amount: usize,
    ) -> Result<Charge, Exhausted> {
        self.add(account, used_for, amount)?;
        Ok(Charge {
            quota: self.clone(),
            account: account.clone(),
            used_for,
            amount,
        })
    }

    /// Takes the amount as soon as it is free, within `timeout`.
    pub(crate) async fn wait(
        &self,
        account: &Account,
        used_for: Use,
        amount: usize,
        timeout: Duration,
    ) -> Result<Charge, Exhausted> {
        let mut last = match self.take(account, used_for, amount) {
            Ok(charge) => return Ok(charge),
            Err(exhausted) => exhausted,
        };
        let freed = async {
            loop {
                let mut released = std::pin::pin!(self.0.released.notified());
                // Registered before the attempt, so that no release is missed.
                released.as_mut().enable();
                match self.take(account, used_for, amount) {
                    Ok(charge) => return charge,
                    Err(exhausted) => last = exhausted,
                }
                released.await;
            }
        };
        tokio::time::timeout(timeout, freed).await.map_err(|_| last)
    }

    fn add(&self, account: &Account, used_for: Use, amount: usize) -> Result<(), Exhausted> {
        let bounds = self.0.bounds;
        let mut held = self.lock();
        let own = held.by_client.get(&account.client).copied().unwrap_or(0) + amount;
        if own > bounds.per_caller {
            return Err(Exhausted::Caller);
        }
        let reserved = if account.privileged {
            bounds.reserved
        } else {
            0
        };
        let total = held.total + amount;
        let streams = match used_for {
            Use::Unary => held.streams,
            Use::Stream => held.streams + amount,
        };
        let too_many_streams = used_for == Use::Stream && streams > bounds.streams + reserved;
        if total > bounds.shared + reserved || too_many_streams {
            return Err(Exhausted::Node);
        }
        held.total = total;
        held.streams = streams;
        held.by_client.insert(Arc::clone(&account.client), own);
        Ok(())
    }

    fn release(&self, account: &Account, used_for: Use, amount: usize) {
        if amount == 0 {
            return;
        }
        let mut held = self.lock();
        held.total -= amount;
        if used_for == Use::Stream {
            held.streams -= amount;
        }
        if let Some(own) = held.by_client.get_mut(&account.client) {
            *own -= amount;
            if *own == 0 {
                held.by_client.remove(&account.client);
            }
        }
        drop(held);
        self.0.released.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Charge {
    /// Changes the amount. Growing fails when the quota is exhausted.
    pub(crate) fn resize(&mut self, amount: usize) -> Result<(), Exhausted> {
        if amount > self.amount {
            let more = amount - self.amount;
            self.quota.add(&self.account, self.used_for, more)?;
        } else {
            let less = self.amount - amount;
            self.quota.release(&self.account, self.used_for, less);
        }
        self.amount = amount;
        Ok(())
    }

    /// Takes over another charge of the same call and quota.
    pub(crate) fn absorb(&mut self, mut other: Self) {
        self.amount += std::mem::take(&mut other.amount);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.quota
            .release(&self.account, self.used_for, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        shared: 100,
        streams: 60,
        reserved: 50,
        per_caller: 70,
    };
    const NOW: Duration = Duration::ZERO;

    fn account(client: &str, privileged: bool) -> Account {
        Account {
            client: client.into(),
            privileged,
        }
    }

    #[test]
    fn a_caller_at_its_share_leaves_the_rest_to_others() {
        let quota = Quota::new(BOUNDS);
        let (one, two) = (account("one", false), account("two", false));
        let _held = quota.take(&one, Use::Unary, 70).unwrap();
        let refused = quota.take(&one, Use::Unary, 1).unwrap_err();
        assert_eq!(refused, Exhausted::Caller);
        let _other = quota.take(&two, Use::Unary, 30).unwrap();
        assert_eq!(
            quota.take(&two, Use::Unary, 1).unwrap_err(),
            Exhausted::Node
        );
    }

    #[test]
    fn streams_leave_room_for_unary_responses_and_the_reserve_for_privileged_callers() {
        let quota = Quota::new(BOUNDS);
        let _streams = quota.take(&account("a", false), Use::Stream, 60).unwrap();
        let other = account("b", false);
        assert!(quota.take(&other, Use::Stream, 1).is_err());
        let _unary = quota.take(&other, Use::Unary, 40).unwrap();
        assert!(quota.take(&account("c", false), Use::Unary, 1).is_err());
        let admin = account("admin", true);
        let _admin = quota.take(&admin, Use::Unary, 50).unwrap();
        assert!(quota.take(&admin, Use::Unary, 1).is_err());
    }

    #[tokio::test]
    async fn a_dropped_charge_is_free_again_and_leaves_nothing_behind() {
        let quota = Quota::new(BOUNDS);
        let one = account("one", false);
        let mut first = quota.take(&one, Use::Stream, 10).unwrap();
        first.absorb(quota.take(&one, Use::Stream, 20).unwrap());
        first.resize(50).unwrap();
        assert!(first.resize(80).is_err());
        first.resize(40).unwrap();
        let other = account("two", false);
        let refused = quota.wait(&other, Use::Stream, 60, NOW).await;
        assert_eq!(refused.unwrap_err(), Exhausted::Node);
        let waiting = tokio::spawn({
            let quota = quota.clone();
            async move {
                let hour = Duration::from_secs(3600);
                quota.wait(&other, Use::Stream, 60, hour).await
            }
        });
        tokio::task::yield_now().await;
        drop(first);
        drop(waiting.await.unwrap().unwrap());
        let held = quota.lock();
        assert!(held.total == 0 && held.streams == 0 && held.by_client.is_empty());
    }
}
