//! gRPC clients for containerd and CRI.
//!
//! The definitions in `proto/` hold only the calls, messages and fields that the containers driver
//! and the tests use, in our own words; names and numbers are those of containerd and CRI v1. Other
//! fields are skipped when a reply is decoded, so no record read through these types may be written
//! back, except [`containerd::types::Mount`], which is complete.
//!
//! Holds no behaviour.

mod packages {
    #![allow(clippy::all, unused_qualifications)]
    include!(concat!(env!("OUT_DIR"), "/packages.rs"));
}

/// containerd's own API, one module per service.
pub mod containerd {
    pub use crate::packages::containerd::services::containers::v1 as containers;
    pub use crate::packages::containerd::services::images::v1 as images;
    pub use crate::packages::containerd::services::namespaces::v1 as namespaces;
    pub use crate::packages::containerd::services::snapshots::v1 as snapshots;
    pub use crate::packages::containerd::services::tasks::v1 as tasks;
    pub use crate::packages::containerd::types;
    pub use crate::packages::containerd::v1::types as task;
}

/// The Kubernetes container runtime interface.
pub use packages::runtime::v1 as cri;
