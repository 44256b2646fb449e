//! What this machine is, read from the kernel's own files.
//!
//! Everything here only reads, blocks, and knows neither async nor gRPC.

pub mod addresses;
pub mod platform;

pub use addresses::{hostname, own_addresses};
pub use platform::{Mode, Platform};
