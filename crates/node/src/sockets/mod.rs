//! Network sockets of the machine, by network namespace, and the processes that own them.

mod namespaces;
mod owners;
mod peer;
mod table;

pub use namespaces::{Namespaces, NamespacesError, SocketsOf, sockets};
pub use owners::{Owner, owners};
pub use peer::owner_of_tcp;
pub use table::{Protocol, Socket, parse};
