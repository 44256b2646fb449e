//! What comes first in a list.

use std::cmp::Ordering;

use crate::top::model::{Node, Process};
use crate::top::screen::Sort;

/// The order of processes. Equals stay in one order, so that nothing jumps while nothing happens.
pub fn processes(sort: Sort, a: &Process, b: &Process) -> Ordering {
    let memory = || b.info.resident_memory.cmp(&a.info.resident_memory);
    let order = match sort {
        Sort::Cpu => most_first(a.cpu, b.cpu).then_with(memory),
        Sort::Memory => memory(),
        Sort::Pid => Ordering::Equal,
        Sort::Name => a.info.command.cmp(&b.info.command),
    };
    order.then_with(|| a.info.pid.cmp(&b.info.pid))
}

/// The order of nodes. Those that have no number of their own stay as they were given.
pub fn nodes(sort: Sort, a: &Node, b: &Node) -> Ordering {
    let cpu = |node: &Node| Some(node.cpu.known()?.total?.busy);
    let memory = |node: &Node| node.memory.known()?.percent();
    match sort {
        Sort::Cpu => most_first(cpu(a), cpu(b)),
        Sort::Memory => most_first(memory(a), memory(b)),
        Sort::Pid => Ordering::Equal,
        Sort::Name => a.name.cmp(&b.name),
    }
}

/// What is not known comes last.
fn most_first(a: Option<f64>, b: Option<f64>) -> Ordering {
    b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0))
}
