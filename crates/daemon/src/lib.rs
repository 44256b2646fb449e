//! The node daemon: configuration, listeners, the gate every call goes through, and one thin file
//! per gRPC service. The only place where all engines meet.

mod call;
mod client_file;
pub mod config;
mod events;
mod listener;
mod log;
mod node;
mod renewal;
mod serve;
mod services;
mod state;

pub use config::{Config, ConfigError, Overrides};
pub use node::Build;
pub use serve::{Ready, ServeError, serve};
pub use services::MOST_MESSAGE_BYTES;
pub use state::{StateError, serving_pid};
