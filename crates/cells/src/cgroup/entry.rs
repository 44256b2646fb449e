//! The way into a group, for processes that are not born yet.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use super::groups::{CgroupError, Cgroups, failed};
use super::layout::{Controller, Mode};

/// What a process needs to be born in a group.
#[derive(Debug)]
pub struct Entry {
    /// The group itself, for `CLONE_INTO_CGROUP`; missing on machines with v1 alone.
    pub unified: Option<File>,
    /// Into each of these the process writes `0` before it does anything else.
    pub procs: Vec<File>,
}

impl Cgroups {
    /// What a process needs to be born in the group: of each tree, the innermost directory around
    /// it that is there.
    pub fn entry(&self, group: &str) -> Result<Entry, CgroupError> {
        let members = self.members_tree();
        let unified = match &self.layout.unified {
            Some(tree) => {
                let path = self.path_in(tree, group);
                Some(File::open(&path).map_err(failed("open", &path))?)
            }
            None => None,
        };
        let mut procs = Vec::new();
        let mut seen = BTreeSet::new();
        for tree in self.layout.v1.values().filter(|tree| seen.insert(*tree)) {
            let path = self.path_in(tree, group);
            let own_root = tree.join(&self.root);
            // Not the root of all: it has no limits, and every such move costs time.
            let around = path.ancestors().take_while(|at| *at != own_root);
            if let Some(at) = around.into_iter().find(|at| at.is_dir()) {
                procs.push(open_procs(at)?);
            }
        }
        if unified.is_none() && procs.is_empty() {
            let path = self.path_in(&members, group);
            return Err(failed("open", &path)(io::ErrorKind::NotFound.into()));
        }
        Ok(Entry { unified, procs })
    }

    /// The same for a group without limits of its own or around it.
    pub fn members_entry(&self, group: &str) -> Result<Entry, CgroupError> {
        let path = self.path_in(&self.members_tree(), group);
        if self.layout.unified.is_some() {
            let unified = Some(File::open(&path).map_err(failed("open", &path))?);
            return Ok(Entry {
                unified,
                procs: Vec::new(),
            });
        }
        Ok(Entry {
            unified: None,
            procs: vec![open_procs(&path)?],
        })
    }

    /// What counts the kills for lack of memory in the group or around it, if anything does.
    pub fn memory_kills(&self, group: &str) -> Option<File> {
        let (tree, file) = match self.mode {
            Mode::V2 => (self.layout.unified.as_ref()?, "memory.events"),
            Mode::V1 | Mode::Hybrid => (
                self.layout.v1.get(&Controller::Memory)?,
                "memory.oom_control",
            ),
        };
        let own_root = tree.join(&self.root);
        let path = self.path_in(tree, group);
        let mut around = path.ancestors().take_while(|at| *at != own_root);
        around.find_map(|at| File::open(at.join(file)).ok())
    }
}

fn open_procs(group: &Path) -> Result<File, CgroupError> {
    let file = OpenOptions::new()
        .write(true)
        .open(group.join("cgroup.procs"));
    file.map_err(failed("open", group))
}
