//! Cells: isolated executables, on a real kernel.

mod model;
