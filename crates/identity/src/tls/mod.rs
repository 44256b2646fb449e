//! TLS configurations made from certificates, and plain words for when a handshake fails. No
//! connection is made here, and no configuration leaves without verification of the peer.

mod client;
mod error;
mod explain;
mod material;
mod server;

pub use crate::pki::certificate_warning;
pub use client::client_config;
pub use error::TlsError;
pub use explain::{explain, explain_to_node};
pub use server::ServerTls;

/// The only protocol spoken inside TLS: gRPC needs HTTP/2.
const ALPN_H2: &[u8] = b"h2";
