//! The caller that a call runs for, as limits see it that are fair per caller.

use std::sync::Arc;

use mainstay_identity::{Caller, Role, Via};

use crate::connection::{Client, Connection, serial};

tokio::task_local! {
    static CURRENT: Requester;
}

/// A caller among others that share a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requester {
    pub client: Client,
    /// Administrators and local users, who are never locked out by others.
    pub privileged: bool,
    pub role: Option<Role>,
    /// The caller, for people.
    pub who: Arc<str>,
    /// The serial number of the caller's certificate.
    pub serial: Option<Arc<str>>,
}

impl Requester {
    /// A forwarded call counts for the caller that the node names.
    pub fn new(connection: &Connection, caller: &Caller, forwarded: bool) -> Self {
        let local = matches!(caller.via, Via::LocalUser { .. });
        let (client, who, serial) = if forwarded {
            let client = Client::Forwarded(caller.name.as_str().into());
            (client, caller.to_string().into(), serial(caller))
        } else {
            // Formatted once for all calls of the connection.
            let Connection {
                client,
                who,
                serial,
                ..
            } = connection;
            (client.clone(), Arc::clone(who), serial.clone())
        };
        Self {
            client,
            privileged: local || caller.role == Some(Role::Admin),
            role: caller.role,
            who,
            serial,
        }
    }

    /// Returns the caller of the call that this task works for. Work outside a call counts for
    /// the daemon's own user; it has no role, so that no check of one passes by mistake.
    pub fn current() -> Self {
        let own = || Self {
            client: Client::User(rustix::process::geteuid().as_raw()),
            privileged: true,
            role: None,
            who: "mainstay".into(),
            serial: None,
        };
        CURRENT.try_with(Self::clone).unwrap_or_else(|_| own())
    }

    /// Runs a call of this caller.
    pub async fn run<F: Future>(self, call: F) -> F::Output {
        CURRENT.scope(self, call).await
    }

    /// Runs a part of a call of this caller that is polled apart from it, such as its answer.
    pub fn poll<T>(&self, part: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self.clone(), part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_polled_apart_counts_for_the_caller() {
        let reader = Requester {
            client: Client::Certificate("reader".into()),
            privileged: false,
            role: Some(Role::Reader),
            who: "reader".into(),
            serial: None,
        };
        // As the body of an answer, which is polled outside the call's own future.
        let mut body = Box::pin(async { Requester::current() });
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let polled = reader.poll(|| body.as_mut().poll(&mut cx));
        assert_eq!(polled, std::task::Poll::Ready(reader));
        assert_eq!(Requester::current().role, None);
    }
}
