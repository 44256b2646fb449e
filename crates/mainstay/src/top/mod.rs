//! `mainstay top`: nodes as they are right now, on a terminal.
//!
//! Readings flow one way: pollers ask ([`poll`]), the model figures ([`model`]), the view draws
//! ([`view`]). Keys change only what is looked at ([`screen`]). A node that goes away takes nothing
//! else with it.

mod app;
mod ask;
mod feed;
mod follow;
mod keys;
mod link;
mod live;
mod model;
mod once;
mod poll;
mod rates;
#[cfg(test)]
mod sample;
mod screen;
mod terminal;
mod view;

pub use live::live;
pub use once::once;
