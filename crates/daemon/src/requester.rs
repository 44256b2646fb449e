//! The caller that a call runs for, as limits see it that are fair per caller.

use mainstay_identity::{Caller, Role, Via};

use crate::connection::Client;

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
}

impl Requester {
    /// `client` is the connection's; a forwarded call counts for the caller that the node names.
    pub fn new(client: &Client, caller: &Caller, forwarded: bool) -> Self {
        let client = if forwarded {
            Client::Forwarded(caller.name.as_str().into())
        } else {
            client.clone()
        };
        let local = matches!(caller.via, Via::LocalUser { .. });
        Self {
            client,
            privileged: local || caller.role == Some(Role::Admin),
            role: caller.role,
        }
    }

    /// Returns the caller of the call that this task works for. Work outside a call counts for
    /// the daemon's own user.
    pub fn current() -> Self {
        let own = || Self {
            client: Client::User(rustix::process::geteuid().as_raw()),
            privileged: true,
            role: Some(Role::Admin),
        };
        CURRENT.try_with(Self::clone).unwrap_or_else(|_| own())
    }

    /// Runs a call of this caller.
    pub async fn run<F: Future>(self, call: F) -> F::Output {
        CURRENT.scope(self, call).await
    }
}
