//! The data of the nodes: rounds go in, rates and totals come out. Knows neither terminal nor
//! network.

mod cpu;
mod devices;
mod log;
mod memory;
mod node;
mod processes;
mod reading;
mod workloads;

pub use cpu::Cpu;
pub use devices::{Disks, Mount, Network, Traffic, mounts};
pub use log::LogLines;
pub use memory::Memory;
pub use node::{Node, NodeState};
pub use processes::{Process, Processes};
pub use reading::{Answer, Reading, Round};
pub use workloads::{Workload, WorkloadAnswers, Workloads};
