//! What this machine is, read from the kernel's own files.
//!
//! Everything here only reads, blocks, and knows neither async nor gRPC.

pub mod addresses;
pub mod counters;
pub mod cpus;
pub mod devices;
pub mod files;
pub mod kmsg;
pub mod load;
pub mod memory;
pub mod mounts;
pub mod platform;
pub mod processes;
pub mod sockets;
mod text;

pub use addresses::{hostname, own_addresses};
pub use platform::{Mode, Platform};
