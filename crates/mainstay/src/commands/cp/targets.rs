//! A copy of one node goes where the user says; copies of several go beside each other there.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::target::Target;
use crate::connection::Connection;
use crate::failure::{Failure, Outcome};

pub(super) enum Targets {
    One(Target),
    /// Made beforehand: only nodes that were asked have one, whatever name comes back.
    Each(Vec<(String, Target)>),
}

impl Targets {
    pub(super) fn new(client: &Connection, path: PathBuf) -> Outcome<Self> {
        if !client.has_many_nodes() {
            return Ok(Self::One(Target::new(path)));
        }
        if path.as_os_str() == "-" {
            return Err(Failure::usage(
                "the archives of several nodes cannot go to one stdout; name a directory or an archive",
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

    /// `false` when writing has ended early; why, `finish` tells.
    pub(super) async fn write(&mut self, node: &str, bytes: Bytes) -> Outcome<bool> {
        match self.of(node) {
            Some(target) => target.write(bytes).await,
            None => Ok(true),
        }
    }

    /// The rest of this node's copy will not come.
    pub(super) async fn give_up(&mut self, node: &str) {
        if let Some(target) = self.of(node) {
            target.abandon().await;
        }
    }

    pub(super) async fn finish(&mut self) -> Outcome {
        for target in self.all() {
            target.finish().await?;
        }
        Ok(())
    }

    /// Removes what copies have made that did not come to their end. Tells what remains.
    pub(super) async fn abandon(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        for target in self.all() {
            left.extend(target.abandon().await);
        }
        left
    }
}

/// `logs/n1` for a directory, `logs-n1.tar.gz` for an archive.
fn path_of(path: &Path, node: &str) -> PathBuf {
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
    fn each_node_has_a_place_of_its_own() {
        let of = |path: &str| path_of(Path::new(path), "n1:50000");
        assert_eq!(of("logs"), Path::new("logs/n1:50000"));
        assert_eq!(of("."), Path::new("./n1:50000"));
        assert_eq!(of("a/b.tar.gz"), Path::new("a/b-n1:50000.tar.gz"));
        assert_eq!(of("/b.tgz"), Path::new("/b-n1:50000.tgz"));
    }
}
