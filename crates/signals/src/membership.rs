//! Which processes belong to a group, from forks and exits that are traced with the signals.
//!
//! By the time a signal is read, the process may be gone, and nothing says any more what it belonged
//! to. Therefore children are entered as they are forked.

use std::collections::HashSet;
use std::fmt;

/// Processes known not to belong; beyond this, they are forgotten and looked up again.
const MAX_OTHERS: usize = 65_536;

/// A group of processes. Its methods may block on the kernel.
pub trait Group: Send + fmt::Debug {
    /// Returns its processes.
    fn processes(&self) -> Vec<i32>;

    /// Returns whether a living process or thread belongs to it.
    fn contains(&self, pid: i32) -> bool;

    /// Returns the process outside the group whose children are inside, if there is one.
    fn parent(&self) -> Option<i32>;
}

/// The processes and threads of a group.
#[derive(Debug)]
pub(crate) struct Members {
    group: Box<dyn Group>,
    inside: HashSet<i32>,
    others: HashSet<i32>,
    /// The latest parent that the group has named.
    parent: Option<i32>,
}

impl Members {
    /// Takes the processes that exist; forks must be traced already.
    pub(crate) fn new(group: Box<dyn Group>) -> Self {
        Self {
            inside: group.processes().into_iter().collect(),
            others: HashSet::new(),
            parent: group.parent(),
            group,
        }
    }

    pub(crate) fn forked(&mut self, parent: i32, child: i32) {
        self.others.remove(&child);
        if self.inside.contains(&parent) || self.is_parent(parent) {
            self.inside.insert(child);
        }
    }

    pub(crate) fn exited(&mut self, pid: i32) {
        self.inside.remove(&pid);
        self.others.remove(&pid);
    }

    pub(crate) fn contains(&mut self, pid: i32) -> bool {
        if self.inside.contains(&pid) {
            return true;
        }
        if self.others.contains(&pid) {
            return false;
        }
        let inside = self.group.contains(pid);
        if inside {
            self.inside.insert(pid);
        } else {
            if self.others.len() >= MAX_OTHERS {
                self.others.clear();
            }
            self.others.insert(pid);
        }
        inside
    }

    fn is_parent(&mut self, pid: i32) -> bool {
        // It may have been replaced; the last one is remembered in case it is gone already.
        self.parent = self.group.parent().or(self.parent);
        self.parent == Some(pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fixed;

    impl Group for Fixed {
        fn processes(&self) -> Vec<i32> {
            vec![10]
        }

        fn contains(&self, pid: i32) -> bool {
            pid == 20
        }

        fn parent(&self) -> Option<i32> {
            Some(5)
        }
    }

    #[test]
    fn descendants_belong_and_exited_ones_are_forgotten() {
        let mut members = Members::new(Box::new(Fixed));
        assert!(members.contains(10) && members.contains(20) && !members.contains(5));
        members.forked(10, 11);
        members.forked(11, 12);
        members.forked(5, 13);
        members.forked(1, 14);
        assert!(members.contains(12) && members.contains(13) && !members.contains(14));
        members.exited(12);
        assert!(!members.contains(12), "its PID may be another's");
        members.forked(13, 14);
        assert!(members.contains(14), "a reused PID");
    }
}
