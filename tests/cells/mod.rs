//! Cells: isolated executables, on a real kernel.

mod aer;
mod attached;
mod aurae;
mod bad_input;
pub mod cell_node;
mod chroot;
mod command_line;
mod deadlines;
mod endings;
mod full_disk;
mod insiders;
mod model;
mod output;
mod signals;
mod stalled_disk;
pub mod survival;
mod upgrade;
