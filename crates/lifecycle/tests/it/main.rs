//! The engine's guarantees, through its public API.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod engine;
mod kill_points;
mod world;
