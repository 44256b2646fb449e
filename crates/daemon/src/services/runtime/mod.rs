//! `runtime.*`: cells, and the services that the contract declares without any rpc.

mod attach;
mod cell_spec;
mod cell_status;
mod cells;
mod empty;

pub(super) use cell_spec::{cell_name, executable_name, executable_spec};
pub(super) use cells::CellCalls;
pub(super) use empty::Empty;
