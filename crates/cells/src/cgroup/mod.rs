//! Control groups: the kernel's own bookkeeping of what belongs together and what it may use.

mod layout;

pub use layout::{Controller, Layout, Mode};
