//! The listeners: TLS, a unix socket for local users and, if configured, TLS on a unix socket for
//! clients of Aurae and a plain loopback port for original pod clients.
//!
//! A listener identifies the caller and passes each request to the gate. It never looks inside a
//! call.

pub mod activation;
mod aurae_socket;
mod authority;
pub mod bind;
mod preface;
mod refusals;
mod serve;

pub use aurae_socket::SocketFile;
pub use authority::rewritten;
pub use serve::Server;
