//! The crate's guarantees, through its public API.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod authority;
mod client_config;
mod expiry;
mod explain;
mod fixtures;
mod handshake;
mod pki_damage;
mod pki_dir;
mod pki_joined;
mod roles;
mod rules;
