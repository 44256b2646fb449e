//! The pids limit of cgroup v1, where the kernel leaves parts of it to the caller.

use std::fs;
use std::path::{Path, PathBuf};

use super::cgroups::{Cgroups, write};
use super::layout::Controller;

impl Cgroups {
    /// Returns whether one more process would exceed the pids limit of the cgroup or of an
    /// ancestor.
    ///
    /// Only for cgroup v1: its pids controller refuses a fork beyond the limit, but not the move
    /// of a process that was forked elsewhere.
    pub fn pids_limit_reached(&self, cgroup: &str) -> bool {
        let Some(hierarchy) = self.layout.v1.get(&Controller::Pids) else {
            return false;
        };
        let own_root = hierarchy.join(&self.root);
        let path = self.path_in(hierarchy, cgroup);
        let mut ancestors = path.ancestors().take_while(|at| *at != own_root);
        ancestors.any(|at| {
            let number = |file: &str| -> Option<usize> {
                let text = fs::read_to_string(at.join(file)).ok()?;
                text.trim().parse().ok()
            };
            // Without a limit the file reads `max`.
            number("pids.max").is_some_and(|max| {
                let current = number("pids.current").unwrap_or(0);
                // `pids.current` counts zombies until their parent reaps them.
                current >= max && threads_below(at) >= max
            })
        })
    }
}

/// Counts the threads in a v1 cgroup and its descendants.
fn threads_below(cgroup: &Path) -> usize {
    let own = fs::read_to_string(cgroup.join("tasks")).unwrap_or_default();
    let entries = fs::read_dir(cgroup).into_iter().flatten().flatten();
    let children = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir());
    own.lines().count() + children.map(|child| threads_below(&child)).sum::<usize>()
}

/// Blocks forks in a cgroup while its processes are killed, where its hierarchy has the pids
/// controller: a fork bomb would otherwise outrun the kill.
pub(super) struct ForkBlock {
    limit: PathBuf,
    before: Option<String>,
}

impl ForkBlock {
    pub(super) fn set(cgroup: &Path) -> Self {
        let limit = cgroup.join("pids.max");
        let before = fs::read_to_string(&limit).ok();
        if before.is_some() {
            let _ = write(&limit, "0");
        }
        Self { limit, before }
    }

    pub(super) fn lift(self) {
        if let Some(before) = self.before {
            let _ = write(&self.limit, before.trim());
        }
    }
}
