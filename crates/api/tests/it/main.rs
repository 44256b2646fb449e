//! The contract as clients see it: what is compiled in, and the rules of the wire around it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod comments;
mod comparison;
mod compatibility;
mod descriptors;
mod envelope;
mod event;
mod expectations;
mod generated;
mod outline;
