//! The contract of a node: messages, clients and servers generated from `proto/`.
//!
//! Modules mirror the packages: `machine.Version` is [`machine::Version`], and the package
//! `resources.stats` is [`resources::stats`]. Beside them stand two rules of the wire that every
//! service shares: how a node wraps its own answer ([`envelope()`]) and how an event is packed
//! ([`event`]).
//!
//! This crate must never hold behaviour of a service: it says how things look on the wire, and
//! the engines never depend on it.

mod contract;
mod envelope;
pub mod event;

pub use contract::*;
pub use envelope::{Envelope, FromNode, Reply, envelope};

/// The compiled contract as a serialised `google.protobuf.FileDescriptorSet`, imports included
/// and source positions left out: what gRPC reflection serves.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/contract.bin"));
