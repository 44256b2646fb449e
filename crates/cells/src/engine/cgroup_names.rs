//! Names of the cgroups of cells, shims and executables, below the engine's root.

use std::path::Path;

use crate::name::{CellName, ExecutableName};

/// No label of a cell starts with it.
const PREFIX: &str = "_";

/// The parent of all shims' cgroups.
pub(super) const SHIMS: &str = "_shims";

/// The cgroup of a cell's shim: outside the cell's own cgroup, whose limits apply to executables
/// only.
pub(super) fn shim_cgroup(cell: &CellName) -> String {
    format!("{SHIMS}/{}", cell.key())
}

/// The cgroup of one executable and its descendants.
pub(super) fn executable_cgroup(cell: &CellName, name: &ExecutableName) -> String {
    format!("{cell}/{PREFIX}{name}")
}

/// Returns whether a cgroup is that of an executable of this cell, or below it; not of a nested cell.
pub(super) fn is_of_executable(cell: &CellName, cgroup: &str) -> bool {
    let inside = Path::new(cgroup).strip_prefix(cell.to_string());
    inside.is_ok_and(|inside| {
        let first = inside.components().next();
        first.is_some_and(|name| {
            name.as_os_str()
                .as_encoded_bytes()
                .starts_with(PREFIX.as_bytes())
        })
    })
}

/// Returns whether a cgroup inside a cell's belongs to an executable, not to a nested cell.
pub(super) fn is_executable_cgroup(cgroup: &str) -> bool {
    let name = cgroup.rsplit('/').next();
    name.is_some_and(|name| name.starts_with(PREFIX))
}
