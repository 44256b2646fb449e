//! Everything a client program of Mainstay needs beside its user interface: the client
//! configuration and its contexts, endpoints, TLS connections, calls to one node or to many, and
//! the formatting of answers as text and JSON.
//!
//! This crate parses no arguments and writes to no terminal. Warnings go to a callback, errors are
//! one typed [`Error`]; a program prints them with [`chain`].

mod call;
mod config_file;
mod connection;
mod endpoint;
mod error;
mod fanout;
pub mod file_systems;
pub mod format;
mod options;
pub mod sequence;

pub use config_file::{config_path, load_config, user_config_path};
pub use connection::{Cells, Client, MAX_MESSAGE_BYTES, Machine};
pub use endpoint::Endpoint;
pub use error::{Error, ErrorKind};
pub use fanout::{Answer, NodeError, Replies, request_to_node, request_to_nodes};
pub use mainstay_error_chain::chain;
pub use options::{DEFAULT_TIMEOUT, Options};
