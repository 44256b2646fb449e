//! Cells: isolated executables, on a real kernel.

mod aer;
mod bad_input;
mod cell_node;
mod command_line;
mod deadlines;
mod insiders;
mod model;
mod output;
mod stalled_disk;
mod survival;
mod upgrade;
