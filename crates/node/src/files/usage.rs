//! Disk usage of a tree: directories after their contents, the root last.
//!
//! Counted as `du` does: allocated bytes, those of directories included, and a file with several
//! hard links only where it is met first. Unreadable entries are reported and the rest is counted.
//! Only the inodes of files with several links are kept in memory.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::Stat;

use super::descent::{Descent, Step};
use super::walk::{Kind, kind_of};

/// The unit of `st_blocks`, whatever the block size of the file system.
const BLOCK_BYTES: u64 = 512;

#[derive(Debug, Clone, Copy, Default)]
pub struct UsageOptions {
    /// The number of levels below the root to report; `None` for all.
    pub depth: Option<u32>,
    /// True to report files too.
    pub files: bool,
}

/// A directory or a file and its disk usage.
#[derive(Debug)]
pub struct Usage {
    pub path: PathBuf,
    /// The path below the root; `.` for the root itself.
    pub relative: PathBuf,
    /// Includes everything below it.
    pub bytes: io::Result<u64>,
}

#[derive(Debug)]
pub struct UsageWalk {
    descent: Descent,
    options: UsageOptions,
    /// The usage so far of each directory on the current path.
    totals: Vec<u64>,
    /// Device and inode of files with several links already counted.
    counted: HashSet<(u64, u64)>,
}

impl UsageWalk {
    /// Starts at `root`. A symbolic link is resolved; a missing root is an error.
    pub fn new(root: &Path, options: UsageOptions) -> io::Result<Self> {
        Ok(Self {
            descent: Descent::new(root)?,
            options,
            totals: Vec::new(),
            counted: HashSet::new(),
        })
    }

    fn met(&mut self, stat: &Stat) -> Option<Usage> {
        let bytes = u64::try_from(stat.st_blocks)
            .unwrap_or(0)
            .saturating_mul(BLOCK_BYTES);
        if kind_of(stat) == Kind::Directory {
            self.totals.push(bytes);
            self.descent.enter();
            return None;
        }
        if stat.st_nlink > 1 && !self.counted.insert((stat.st_dev, stat.st_ino)) {
            return None;
        }
        self.add(bytes);
        let is_root = self.descent.depth() == 0;
        (self.options.files || is_root)
            .then(|| self.usage(Ok(bytes)))
            .flatten()
    }

    fn left(&mut self) -> Option<Usage> {
        let bytes = self.totals.pop().unwrap_or(0);
        self.add(bytes);
        self.usage(Ok(bytes))
    }

    fn add(&mut self, bytes: u64) {
        if let Some(total) = self.totals.last_mut() {
            *total = total.saturating_add(bytes);
        }
    }

    /// Returns the entry unless it is too deep to report; failures are always reported.
    fn usage(&self, bytes: io::Result<u64>) -> Option<Usage> {
        let depth = self.descent.depth();
        let told = self
            .options
            .depth
            .is_none_or(|most| depth <= usize::try_from(most).unwrap_or(usize::MAX));
        if !told && bytes.is_ok() {
            return None;
        }
        let below = self.descent.relative();
        Some(Usage {
            path: self.descent.path().to_owned(),
            relative: if below.as_os_str().is_empty() {
                PathBuf::from(".")
            } else {
                below.to_owned()
            },
            bytes,
        })
    }
}

/// One step of the count. Most entries are reported only as part of a directory, but the caller
/// needs progress.
impl Iterator for UsageWalk {
    type Item = Option<Usage>;

    fn next(&mut self) -> Option<Option<Usage>> {
        Some(match self.descent.step()? {
            Step::Met(Ok(stat)) => self.met(&stat),
            Step::Met(Err(error)) | Step::Unreadable(error) => self.usage(Err(error)),
            Step::Left => self.left(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::process::Command;

    fn told(root: &Path, options: UsageOptions) -> Vec<(String, u64)> {
        UsageWalk::new(root, options)
            .unwrap()
            .flatten()
            .map(|usage| {
                let name = usage.relative.display().to_string();
                (name, usage.bytes.unwrap())
            })
            .collect()
    }

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("b/deep/er")).unwrap();
        std::fs::create_dir(root.join("empty")).unwrap();
        std::fs::write(root.join("a"), "small").unwrap();
        std::fs::write(root.join("b/c"), vec![7; 300_000]).unwrap();
        std::fs::write(root.join("b/deep/er/x"), vec![7; 20_000]).unwrap();
        std::fs::hard_link(root.join("b/c"), root.join("b/deep/again")).unwrap();
        symlink("/usr", root.join("link")).unwrap();
        let sparse = std::fs::File::create(root.join("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        dir
    }

    /// The output of the machine's `du`, which has no fixed order.
    fn du(root: &Path, args: &[&str]) -> Vec<(String, u64)> {
        let output = Command::new("du")
            .args(["--block-size=1"])
            .args(args)
            .arg(".")
            .current_dir(root)
            .output()
            .unwrap();
        let mut all: Vec<(String, u64)> = String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| {
                let (bytes, path) = line.split_once('\t').unwrap();
                let name = path.strip_prefix("./").unwrap_or(path);
                (name.to_owned(), bytes.parse().unwrap())
            })
            .collect();
        all.sort();
        all
    }

    #[test]
    fn children_come_before_their_directory_and_the_root_last() {
        let dir = tree();
        let options = UsageOptions {
            files: true,
            ..UsageOptions::default()
        };
        let names: Vec<String> = told(dir.path(), options)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let expected = [
            "a",
            "b/c",
            "b/deep/er/x",
            "b/deep/er",
            "b/deep",
            "b",
            "empty",
            "link",
            "sparse",
            ".",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn usage_is_counted_as_du_does() {
        let dir = tree();
        for (options, args) in [
            (UsageOptions::default(), vec![]),
            (
                UsageOptions {
                    depth: Some(1),
                    files: true,
                },
                vec!["-a", "-d1"],
            ),
            (
                UsageOptions {
                    depth: Some(0),
                    files: false,
                },
                vec!["-s"],
            ),
        ] {
            let mut ours = told(dir.path(), options);
            ours.sort();
            // `du` does not define which of two hard links it counts, only that it counts one.
            let of = |all: &[(String, u64)]| -> Vec<(String, u64)> {
                let moved = ["b/c", "b/deep", "b/deep/again"];
                all.iter()
                    .filter(|(name, _)| !moved.contains(&name.as_str()))
                    .cloned()
                    .collect()
            };
            assert_eq!(of(&ours), of(&du(dir.path(), &args)));
        }
    }

    #[test]
    fn a_file_is_its_own_root() {
        let dir = tree();
        let blocks = std::fs::metadata(dir.path().join("b/c")).unwrap().blocks();
        let all = told(&dir.path().join("b/c"), UsageOptions::default());
        assert_eq!(all, [(".".to_owned(), blocks * 512)]);
        assert!(UsageWalk::new(&dir.path().join("none"), UsageOptions::default()).is_err());
    }
}
