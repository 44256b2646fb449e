//! One connection to the node: its identified caller and its admission. Listeners create it, and
//! the gate logs calls by it; neither knows the other's side of it.

mod admission;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mainstay_identity::{Caller, Via};

pub use admission::{CallGuard, Client, ConnectionLimits, Connections, Standing, Ticket};

/// The number of connections so far.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// An admitted connection with its identified caller.
#[derive(Debug)]
pub struct Connection {
    /// Differs from that of every other connection.
    pub id: u64,
    pub caller: Caller,
    /// The caller, for people.
    pub who: Arc<str>,
    /// The serial number of the caller's certificate.
    pub serial: Option<Arc<str>>,
    /// The peer's address, or `unix`.
    pub peer: String,
    /// Caller and peer as every log line of this connection shows them.
    pub log_fields: String,
    /// The client that the connection counts for.
    pub client: Client,
    pub ticket: Ticket,
}

impl Connection {
    pub fn new(caller: Caller, peer: String, client: Client, ticket: Ticket) -> Self {
        Self {
            id: CONNECTIONS.fetch_add(1, Ordering::Relaxed),
            // Quoted as text: a name in a certificate may hold anything.
            log_fields: format!("who={:?} from={peer}", caller.to_string()),
            who: caller.to_string().into(),
            serial: serial(&caller),
            caller,
            peer,
            client,
            ticket,
        }
    }

    /// Returns the log fields of a call that this connection's node forwards for `caller`.
    pub fn log_fields_for(&self, caller: &Caller) -> String {
        let who = format!("{caller} through node {}", self.caller.name);
        format!("who={who:?} from={}", self.peer)
    }
}

/// Returns the serial number of a caller's certificate.
pub fn serial(caller: &Caller) -> Option<Arc<str>> {
    match &caller.via {
        Via::Certificate { serial, .. } => Some(serial.as_str().into()),
        _ => None,
    }
}
