//! Facts about this machine, read from `/proc` and `/sys`.
//!
//! Everything here only reads and blocks; it knows neither async nor gRPC.

pub mod addresses;
pub mod cgroups;
pub mod clock;
pub mod counters;
pub mod cpus;
pub mod devices;
pub mod disks;
pub mod files;
pub mod kmsg;
pub mod load;
pub mod memory;
pub mod mounts;
pub mod network;
pub mod ntp;
pub mod processes;
pub mod sockets;
mod text;

pub use addresses::{hostname, own_addresses};
