//! A client of the Simple Network Time Protocol.

mod packet;
mod query;

pub use packet::{Measurement, NtpError, PACKET_BYTES, Request};
pub use query::{DEFAULT_PORT, QueryError, query};
