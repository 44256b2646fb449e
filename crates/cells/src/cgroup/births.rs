//! Who may be born in a group, where only the count of its processes can say.

use std::fs;
use std::path::{Path, PathBuf};

use super::groups::{Cgroups, write};
use super::layout::Controller;

impl Cgroups {
    /// Whether a process more would be beyond a limit of the group or around it, for trees of
    /// version 1: they refuse births, but let anybody in who was born elsewhere.
    pub fn is_full(&self, group: &str) -> bool {
        let Some(tree) = self.layout.v1.get(&Controller::Pids) else {
            return false;
        };
        let own_root = tree.join(&self.root);
        let path = self.path_in(tree, group);
        let mut around = path.ancestors().take_while(|at| *at != own_root);
        around.any(|at| {
            let number = |file: &str| -> Option<usize> {
                let text = fs::read_to_string(at.join(file)).ok()?;
                text.trim().parse().ok()
            };
            // Without a limit it says `max`.
            let most = number("pids.max");
            most.is_some_and(|most| {
                let now = number("pids.current").unwrap_or(0);
                // Those that have ended are counted until somebody takes notice.
                now >= most && threads_below(at) >= most
            })
        })
    }
}

/// How many threads live in a group of version 1 and in those nested in it.
fn threads_below(group: &Path) -> usize {
    let own = fs::read_to_string(group.join("tasks")).unwrap_or_default();
    let inside = fs::read_dir(group).into_iter().flatten().flatten();
    let nested = inside
        .map(|entry| entry.path())
        .filter(|path| path.is_dir());
    own.lines().count() + nested.map(|group| threads_below(&group)).sum::<usize>()
}

/// Holds back new processes of a group while those that are there are killed, where its tree can:
/// whoever forks faster than it is found would never be gone.
pub(super) struct Births {
    limit: PathBuf,
    before: Option<String>,
}

impl Births {
    pub(super) fn forbid(group: &Path) -> Self {
        let limit = group.join("pids.max");
        let before = fs::read_to_string(&limit).ok();
        if before.is_some() {
            let _ = write(&limit, "0");
        }
        Self { limit, before }
    }

    pub(super) fn allow(self) {
        if let Some(before) = self.before {
            let _ = write(&self.limit, before.trim());
        }
    }
}
