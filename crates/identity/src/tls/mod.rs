//! TLS configurations built from certificates, and descriptions of failed handshakes. No connection
//! is opened here, and every configuration verifies the peer.

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
