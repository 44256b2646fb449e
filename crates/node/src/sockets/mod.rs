//! The network sockets of the machine, by namespace, and who has them open.

mod namespaces;
mod owners;
mod table;

pub use namespaces::{Namespaces, NamespacesError, SocketsOf, sockets};
pub use owners::{Owner, owners};
pub use table::{Protocol, Socket, parse};
