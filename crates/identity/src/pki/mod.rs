//! The node's public key infrastructure: a directory with the authority that clients trust and
//! the node's own certificate.
//!
//! | file       | mode | what it is                                                       |
//! |------------|------|------------------------------------------------------------------|
//! | `ca.key`   | 0600 | the authority's key; absent on a node that joined a foreign one  |
//! | `ca.crt`   | 0644 | what clients and nodes verify each other against                 |
//! | `node.key` | 0600 | the node's key                                                   |
//! | `node.crt` | 0644 | the node's certificate, for serving and for calling other nodes  |
//!
//! Files that can be recreated without effect on clients are recreated; an authority that clients
//! trust is never replaced, only reported. Every key is ECDSA P-256.

mod authority;
mod dir;
mod error;
mod expiry;
mod files;
mod info;
mod names;
mod node_check;

pub use authority::{Authority, CA_TTL, CLIENT_TTL, ClientSpec, IssuedPem, NODE_TTL};
pub use dir::{CertifiedNode, Ensured, PkiDir};
pub use error::PkiError;
pub use expiry::{certificate_warning, day, expiry_phrase};
pub use info::{CertificateInfo, UnreadableCertificate};
pub use names::NodeNames;
