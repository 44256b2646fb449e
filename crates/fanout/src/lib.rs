//! One call, many nodes: takes a call for other nodes, asks them with this node's certificate, and
//! makes one answer of theirs.
//!
//! It works on bytes: a reply is tagged with the node it came from by appending a few bytes to it,
//! and is never decoded. What another node sends is not trusted: it is checked against the
//! contract's shape before it joins the answers of others, so that no node can break an answer that
//! is not its own.

mod contract;
mod dial;
mod frames;
mod gather;
mod interleave;
mod merge;
mod outgoing;
mod pool;
mod target;
mod wire;

mod fanout;

pub use contract::{Contract, Method};
pub use fanout::{Fanout, Forward, Local, Place, Settings};
pub use merge::{NodeTag, TagError};
pub use outgoing::{Asker, FORWARDED_FOR, FORWARDED_ROLE, PROXY_FROM};
pub use target::{Address, BadTarget, Host, Target};
pub use wire::Malformed;
