//! Fan-out: forwards a call to other nodes with this node's certificate and merges their answers.
//!
//! It works on bytes: a reply is tagged with the node it came from by appending a few bytes to it,
//! and is never decoded. Answers of other nodes are not trusted: each is checked against the
//! contract's shape before it is merged, so that no node can break the answer of another.

mod chunks;
mod contract;
mod dial;
mod frames;
mod gather;
mod held;
mod interleave;
mod limits;
mod merge;
mod outgoing;
mod pool;
mod quota;
mod target;
mod targets;
mod wire;

mod fanout;

pub use contract::{Contract, Method};
pub use fanout::{Fanout, Forward, Local, Settings};
pub use merge::{NodeTag, TagError};
pub use outgoing::{Asker, FORWARDED_FOR, FORWARDED_ROLE, FORWARDED_SERIAL, PROXY_FROM};
pub use quota::Account;
pub use target::{Address, BadTarget, Host, Target};
pub use targets::{Place, Refusal, Targets};
pub use wire::Malformed;
