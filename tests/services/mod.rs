//! Services: programs that the node keeps running.

mod command_line;
mod configuration;
mod order;
mod programs;
mod robust;
mod rpcs;
mod service_node;
mod survival;
mod views;
