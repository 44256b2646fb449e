//! Services: programs that the node keeps running, in the order of their dependencies.
//!
//! Three layers: [`Definition`] is a service as declared, [`core`] decides what happens next and
//! does nothing itself, and [`Supervisor`] carries it out on cells. This crate knows no gRPC but
//! that of health checks, and reads no configuration file.

mod accounts;
pub mod core;
mod definition;
mod driver;
pub mod graph;
mod name;
mod probe;
mod program;
mod stopped;

pub use definition::{BackOff, Definition, HealthCheck, Operation, Probe, RestartPolicy};
pub use driver::{
    HistoryEntry, NotDown, OpenError, ServiceError, ServiceStatus, Settings, Supervisor,
    SupervisorEvents,
};
pub use name::{BadServiceName, SHARED_CELLS, ServiceName};
pub use program::{BadDefinition, check};
