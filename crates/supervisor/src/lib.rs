//! Services: programs that the node keeps running, in the order of their dependencies.
//!
//! Three layers: [`Definition`] is a service as declared, [`core`] decides what happens next and
//! does nothing itself, and the driver carries it out on cells. This crate knows no gRPC and reads
//! no configuration file.

pub mod core;
mod definition;
pub mod graph;
mod name;

pub use definition::{BackOff, Definition, HealthCheck, Operation, Probe, RestartPolicy};
pub use name::{BadServiceName, ServiceName};
