//! Cells: isolated executables that outlive the daemon.

pub mod capabilities;
pub mod cgroup;
mod limits;
mod name;
pub mod seccomp;

pub use limits::{
    BadLimit, CpuList, CpuMax, CpuShares, Device, IoLimit, IoLimits, IoRates, Limits, MemoryLimits,
};
pub use name::{BadCellName, CellName};
