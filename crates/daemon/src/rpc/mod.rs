//! Tools for writing services: streams of answers, blocking work, and errors as gRPC status.

mod blocking;
mod producer;
mod slots;
pub mod status;

use std::pin::Pin;

use futures_util::Stream;
use tonic::Status;

pub use blocking::blocking;
pub use producer::{Gathering, Gone, Reader, produce, produce_many};

/// The largest message either way.
pub const MAX_MESSAGE_BYTES: usize = 32 << 20;

/// A stream of answers.
pub type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The status of an rpc that this version declares and does not serve.
pub fn not_served(rpc: &str) -> Status {
    Status::unimplemented(format!(
        "{rpc} is not served by mainstay {}; a later version will",
        env!("CARGO_PKG_VERSION")
    ))
}
