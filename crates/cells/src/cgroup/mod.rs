//! Control groups: the kernel's own bookkeeping of what belongs together and what it may use.

mod groups;
mod layout;
mod settings;
mod usage;

pub use groups::{CgroupError, Cgroups, Entry};
pub use layout::{Controller, Layout, Mode};
pub use usage::Usage;
