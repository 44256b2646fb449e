//! Targets of a copy: one for one node, one per node for several.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use mainstay_archive::Report;

use super::target::Target;
use crate::connection::Connection;
use crate::failure::{Failure, Outcome};

pub(super) enum Targets {
    One(Target),
    /// One per called node; a name that was not called has none.
    Each(Vec<(String, Target)>),
}

impl Targets {
    pub(super) fn new(client: &Connection, path: PathBuf) -> Outcome<Self> {
        if !client.has_many_nodes() {
            return Ok(Self::One(Target::new(path)));
        }
        if path.as_os_str() == "-" {
            return Err(Failure::usage(
                "archives of several nodes cannot share stdout; name a directory or an archive",
            ));
        }
        let each = client.nodes().iter().map(|node| {
            let target = Target::new(path_of(&path, node));
            (node.clone(), target)
        });
        Ok(Self::Each(each.collect()))
    }

    fn of(&mut self, node: &str) -> Option<&mut Target> {
        match self {
            Self::One(target) => Some(target),
            Self::Each(each) => {
                let mut each = each.iter_mut();
                each.find(|(name, _)| name == node)
                    .map(|(_, target)| target)
            }
        }
    }

    fn all(&mut self) -> Vec<&mut Target> {
        match self {
            Self::One(target) => vec![target],
            Self::Each(each) => each.iter_mut().map(|(_, target)| target).collect(),
        }
    }

    /// Writes bytes. Returns `false` if writing has ended; `finish` returns the reason.
    pub(super) async fn write(&mut self, node: &str, bytes: Bytes) -> Outcome<bool> {
        match self.of(node) {
            Some(target) => target.write(bytes).await,
            None => Ok(true),
        }
    }

    /// Abandons the copy of a node that failed.
    pub(super) async fn abandon_node(&mut self, node: &str) {
        if let Some(target) = self.of(node) {
            target.abandon().await;
        }
    }

    /// Waits until everything is written. Returns the reports of what was unpacked, by node.
    pub(super) async fn finish(&mut self) -> Outcome<Vec<(String, Report)>> {
        let mut reports = Vec::new();
        match self {
            Self::One(target) => {
                let report = target.finish().await?;
                reports.extend(report.map(|report| (String::new(), report)));
            }
            Self::Each(each) => {
                for (node, target) in each {
                    let report = target.finish().await?;
                    reports.extend(report.map(|report| (node.clone(), report)));
                }
            }
        }
        Ok(reports)
    }

    /// Removes the files of incomplete copies. Returns messages about files that remain.
    pub(super) async fn abandon(&mut self) -> Vec<String> {
        let mut remaining = Vec::new();
        for target in self.all() {
            remaining.extend(target.abandon().await);
        }
        remaining
    }
}

/// Returns `logs/n1` for a directory, `logs-n1.tar.gz` for an archive.
fn path_of(path: &Path, node: &str) -> PathBuf {
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return path.join(node);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    for ending in [".tar.gz", ".tgz"] {
        if let Some(stem) = name.strip_suffix(ending) {
            return path.with_file_name(format!("{stem}-{node}{ending}"));
        }
    }
    path.join(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_its_own_path() {
        let of = |path: &str| path_of(Path::new(path), "n1:50000");
        assert_eq!(of("logs"), Path::new("logs/n1:50000"));
        assert_eq!(of("."), Path::new("./n1:50000"));
        assert_eq!(of("./b.tgz/"), Path::new("./b.tgz/n1:50000"));
        assert_eq!(of("a/b.tar.gz"), Path::new("a/b-n1:50000.tar.gz"));
        assert_eq!(of("/b.tgz"), Path::new("/b-n1:50000.tgz"));
    }
}
