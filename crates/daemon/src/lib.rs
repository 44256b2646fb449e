//! The node daemon: configuration, listeners, the gate that every call passes, the engines, and one
//! thin file per gRPC service. The only place where all engines meet.

mod actor_tag;
mod call;
pub mod config;
mod configuration;
mod connection;
mod engines;
pub mod handover;
mod listener;
mod log;
mod node;
mod requester;
mod rpc;
mod serve;
mod service_events;
mod service_manager;
mod services;
mod signals;
mod state;
mod text;
mod trial;
mod workloads;

pub use config::{Config, ConfigError, Overrides};
#[doc(hidden)]
pub use listener::rewritten as rewritten_requests;
pub use node::Build;
pub use rpc::MAX_MESSAGE_BYTES;
pub use serve::{Ended, Ready, ServeError, serve};
pub use state::{FORMAT_VERSION as STATE_FORMAT, StateError, serving_pid};
