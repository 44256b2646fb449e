//! Cgroups: creation, limits, entry, kill and removal, below one root in each hierarchy.

mod cgroups;
mod entry_fds;
mod kill;
mod layout;
mod pids_limit;
mod settings;
mod usage;

pub use cgroups::{CgroupError, Cgroups};
pub use entry_fds::EntryFds;
pub use layout::{CgroupMode, Controller, Layout};
pub use usage::Usage;
