//! Behaviour of the journal through its public interface.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod child;
mod cri;
mod event_crash;
mod event_damage;
mod event_follow;
mod event_ids;
mod event_model;
mod event_retention;
mod event_versions;
mod fixtures;
mod full_disk;
mod log_crash;
mod log_damage;
mod log_follow;
mod log_foreign;
mod log_model;
mod log_support;
mod log_writer;
mod support;
mod timestamp;
