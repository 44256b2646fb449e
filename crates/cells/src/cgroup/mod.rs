//! Control groups: the kernel's own bookkeeping of what belongs together and what it may use.

mod births;
mod entry;
mod groups;
mod layout;
mod settings;
mod usage;

pub use entry::Entry;
pub use groups::{CgroupError, Cgroups};
pub use layout::{Controller, Layout, Mode};
pub use usage::Usage;
