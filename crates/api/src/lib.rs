//! The contract of a node: messages, clients and servers generated from `proto/`.
//!
//! Modules mirror the packages: `machine.Version` is [`machine::Version`], and the package
//! `resources.stats` is [`resources::stats`]. Two rules of the wire that every service shares are
//! here too: the envelope of a node's own answer ([`envelope()`]) and the packing of events
//! ([`event`]).
//!
//! This crate must never contain behaviour of a service: it defines the wire format, and the
//! engines never depend on it.

mod contract;
mod envelope;
pub mod event;

pub use contract::*;
pub use envelope::{Envelope, FromNode, Reply, envelope};

/// The compiled contract as a serialised `google.protobuf.FileDescriptorSet`, imports included
/// and source positions left out: what gRPC reflection serves.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/contract.bin"));
