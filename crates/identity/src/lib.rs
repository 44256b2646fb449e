//! Identity and permissions of callers: certificates, roles, the authorizer's table, TLS
//! configurations, and the client configuration with its credentials.
//!
//! This crate knows neither gRPC nor an async runtime. It must never let a private key reach a
//! log or an error text, and never replace a certificate authority that clients already trust.

mod caller;
pub mod client_config;
mod crypto;
mod pem;
pub mod pki;
mod private_key;
mod roles;
pub mod rules;
mod secret_file;
pub mod tls;

pub use caller::{Caller, Via};
pub use client_config::{ClientConfig, Context};
pub use pki::{Authority, CertificateInfo, CertifiedNode, ClientSpec, Ensured, IssuedPem};
pub use pki::{NodeNames, PkiDir, PkiError};
pub use private_key::PrivateKeyPem;
pub use roles::{NODE_ORGANIZATION, Role, UnknownRole};
pub use rules::{Denied, RULES, Rule, authorize, rule};
pub use secret_file::SecretFileError;
