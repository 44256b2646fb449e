//! Cells on this machine's own kernel, as root.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cells;
mod cgroups;
mod child;
mod confinement;
mod harness;
mod zygote;
