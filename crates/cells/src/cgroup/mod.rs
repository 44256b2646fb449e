//! Control groups: the kernel's own bookkeeping of what belongs together and what it may use.

mod groups;
mod layout;
mod settings;

pub use groups::{CgroupError, Cgroups, Entry};
pub use layout::{Controller, Layout, Mode};
