//! Tests of cells on this machine's kernel, as root.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

mod attacks;
mod cells;
mod cgroups;
mod child;
mod confinement;
mod harness;
mod isolation;
mod output;
mod restart;
mod robust;
mod zygote;
