//! File descriptors by which a process enters a cgroup.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use super::cgroups::{CgroupError, Cgroups, failed};
use super::layout::{CgroupMode, Controller};

/// The file descriptors a process needs to start in a cgroup.
#[derive(Debug)]
pub struct EntryFds {
    /// The v2 cgroup directory, for `CLONE_INTO_CGROUP`; missing on machines with v1 alone.
    pub unified: Option<File>,
    /// `cgroup.procs` of v1 cgroups: the process writes `0` to each before anything else.
    pub procs: Vec<File>,
}

impl Cgroups {
    /// Opens the cgroup in every hierarchy; where it has no directory, the nearest ancestor that
    /// exists.
    pub fn entry_fds(&self, cgroup: &str) -> Result<EntryFds, CgroupError> {
        let unified = match &self.layout.unified {
            Some(hierarchy) => {
                let path = self.path_in(hierarchy, cgroup);
                Some(File::open(&path).map_err(failed("open", &path))?)
            }
            None => None,
        };
        let mut procs = Vec::new();
        let mut seen = BTreeSet::new();
        let hierarchies = self.layout.v1.values();
        for hierarchy in hierarchies.filter(|hierarchy| seen.insert(*hierarchy)) {
            let path = self.path_in(hierarchy, cgroup);
            let own_root = hierarchy.join(&self.root);
            // Not our root: it has no limits, and every move between v1 cgroups costs time.
            let ancestors = path.ancestors().take_while(|at| *at != own_root);
            if let Some(at) = ancestors.into_iter().find(|at| at.is_dir()) {
                procs.push(open_procs(at)?);
            }
        }
        if unified.is_none() && procs.is_empty() {
            let path = self.path_in(&self.membership_hierarchy(), cgroup);
            return Err(failed("open", &path)(io::ErrorKind::NotFound.into()));
        }
        Ok(EntryFds { unified, procs })
    }

    /// Opens a cgroup that has no limits, neither of its own nor of an ancestor: the membership
    /// hierarchy alone.
    pub fn membership_fds(&self, cgroup: &str) -> Result<EntryFds, CgroupError> {
        let path = self.path_in(&self.membership_hierarchy(), cgroup);
        if self.layout.unified.is_some() {
            let unified = Some(File::open(&path).map_err(failed("open", &path))?);
            return Ok(EntryFds {
                unified,
                procs: Vec::new(),
            });
        }
        Ok(EntryFds {
            unified: None,
            procs: vec![open_procs(&path)?],
        })
    }

    /// Opens the file that counts OOM kills in the cgroup or its nearest ancestor with the memory
    /// controller.
    pub fn oom_kill_counter(&self, cgroup: &str) -> Option<File> {
        let (hierarchy, file) = match self.mode {
            CgroupMode::V2 => (self.layout.unified.as_ref()?, "memory.events"),
            CgroupMode::V1 | CgroupMode::Hybrid => (
                self.layout.v1.get(&Controller::Memory)?,
                "memory.oom_control",
            ),
        };
        let own_root = hierarchy.join(&self.root);
        let path = self.path_in(hierarchy, cgroup);
        let mut ancestors = path.ancestors().take_while(|at| *at != own_root);
        ancestors.find_map(|at| File::open(at.join(file)).ok())
    }
}

fn open_procs(cgroup: &Path) -> Result<File, CgroupError> {
    let file = OpenOptions::new()
        .write(true)
        .open(cgroup.join("cgroup.procs"));
    file.map_err(failed("open", cgroup))
}
