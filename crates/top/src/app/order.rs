//! Sort orders of processes and nodes.

use std::cmp::Ordering;

use crate::model::{Node, Process};
use crate::screen::Sort;

/// Compares processes; ties are broken by PID, so that rows keep their place.
pub fn processes(sort: Sort, a: &Process, b: &Process) -> Ordering {
    let memory = || b.info.resident_memory.cmp(&a.info.resident_memory);
    let order = match sort {
        Sort::Cpu => descending(a.cpu, b.cpu).then_with(memory),
        Sort::Memory => memory(),
        Sort::Pid => Ordering::Equal,
        Sort::Name => a.info.command.cmp(&b.info.command),
    };
    order.then_with(|| a.info.pid.cmp(&b.info.pid))
}

/// Compares nodes; ties keep the order of the command line.
pub fn nodes(sort: Sort, a: &Node, b: &Node) -> Ordering {
    let cpu = |node: &Node| Some(node.cpu.known()?.total?.busy);
    let memory = |node: &Node| node.memory.known()?.percent();
    match sort {
        Sort::Cpu => descending(cpu(a), cpu(b)),
        Sort::Memory => descending(memory(a), memory(b)),
        Sort::Pid => Ordering::Equal,
        Sort::Name => a.name.cmp(&b.name),
    }
}

/// Compares in descending order; unknown values come last.
fn descending(a: Option<f64>, b: Option<f64>) -> Ordering {
    b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0))
}
