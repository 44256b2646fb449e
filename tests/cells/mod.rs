//! Cells: isolated executables, on a real kernel.

mod command_line;
mod model;
