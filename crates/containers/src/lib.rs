//! What other runtimes run on this machine: containers of containerd, and of Kubernetes through
//! its container runtime interface (CRI).
//!
//! One engine, [`Containers`], over two drivers that give the same answers in the same words. It
//! connects when it is first asked and again whenever it has to, bounds every wait, and never lets
//! one container that cannot be read hide the others.
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
