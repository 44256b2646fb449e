//! The kernel's count of OOM kills in a cell.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// Compares the count of OOM kills with what it was when an executable started.
pub(super) struct OomKills {
    file: File,
    before: u64,
}

impl OomKills {
    /// `file` is `memory.events` of cgroup v2 or `memory.oom_control` of v1.
    pub(super) fn begin(file: OwnedFd) -> Option<Self> {
        let file = File::from(file);
        let before = Self::read(&file)?;
        Some(Self { file, before })
    }

    /// Returns whether the kernel has OOM-killed a process of the cell since.
    pub(super) fn happened(&self) -> bool {
        Self::read(&self.file).is_some_and(|now| now > self.before)
    }

    fn read(file: &File) -> Option<u64> {
        let mut text = [0; 1024];
        let got = file.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..got]).ok()?;
        let count = text
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill "))?;
        count.trim().parse().ok()
    }
}
