//! Where calls come in: TLS for everybody, a unix socket for local users, and, when switched on,
//! a plain loopback port for original pod clients.
//!
//! A listener finds out who is on the other side and hands each request, with that, to the gate.
//! It never looks inside a call.

pub mod activation;
pub mod bind;
mod connections;
mod refusals;
mod serve;

pub use connections::{CallGuard, ConnectionLimits, Connections, Ticket};
pub use serve::Server;
