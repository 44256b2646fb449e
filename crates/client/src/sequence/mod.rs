//! Waiting for a sequence of a node (reboot, upgrade and their like), and running one on many nodes
//! in turn.

mod follow;
mod rolling;

pub use follow::{Awaited, SequenceEnd, SequenceStep, await_serving, follow_sequence};
pub use rolling::{NodeOutcome, roll};
