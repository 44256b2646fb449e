//! Containers of other runtimes on this machine: of containerd, and of Kubernetes through the
//! container runtime interface (CRI).
//!
//! One engine, [`Containers`], over two drivers that describe containers alike. It connects on
//! first use and reconnects as needed, bounds every wait, and never lets one unreadable container
//! hide the others.
//!
//! This crate knows nothing of the node's own API, keeps no state about containers, and changes
//! none except by [`Containers::restart`].

mod cgroup;
mod choice;
mod connection;
mod container;
mod containerd;
mod cri;
mod engine;
mod error;
mod images;
mod input;
mod log;
mod names;
mod restarts;
mod spec;

pub use container::{Container, Kind, Usage};
pub use engine::{Containers, Driver, Sockets};
pub use error::{ContainerError, NoLog};
pub use log::{Instance, LogFile};
