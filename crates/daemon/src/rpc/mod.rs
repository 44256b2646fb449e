//! Tools for writing services: streams of answers, blocking work, and errors as gRPC status.

mod blocking;
mod producer;
mod reading;
mod slots;
pub mod status;

use std::pin::Pin;

use futures_util::Stream;
use tonic::Status;

pub use blocking::blocking;
pub use producer::{Gathering, Gone, Reader, produce, produce_many};
pub use reading::{reading, reading_in_turn};
pub use slots::{Bounds, Slot, Slots};

/// The largest message either way.
pub const MAX_MESSAGE_BYTES: usize = 32 << 20;

/// The envelope around a unary answer, with a margin.
const ENVELOPE_BYTES: usize = 64;

/// Refuses an answer that no client could receive; `objects` names what it holds too many of.
pub fn fitting<M: prost::Message>(answer: M, objects: &str) -> Result<M, Status> {
    if answer.encoded_len() + ENVELOPE_BYTES > MAX_MESSAGE_BYTES {
        let limit = MAX_MESSAGE_BYTES >> 20;
        return Err(Status::resource_exhausted(format!(
            "the {objects} do not fit into an answer of {limit} MiB"
        )));
    }
    Ok(answer)
}

/// A stream of answers.
pub type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The status of an rpc that this version declares and does not serve.
pub fn not_served(rpc: &str) -> Status {
    Status::unimplemented(format!(
        "{rpc} is not served by mainstay {}; a later version will",
        env!("CARGO_PKG_VERSION")
    ))
}
