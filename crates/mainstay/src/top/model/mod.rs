//! What is known of the nodes: readings go in, figures come out. Knows neither terminal nor
//! network.

mod cpu;
mod devices;
mod log;
mod memory;
mod node;
mod processes;
mod reading;

pub use cpu::Cpu;
pub use devices::{Disks, Mount, Network, Traffic, mounts};
pub use log::LogLines;
pub use memory::Memory;
pub use node::{Node, Standing};
pub use processes::{Process, Processes};
pub use reading::{Answer, Reading, Round};
