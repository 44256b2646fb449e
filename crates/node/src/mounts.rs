//! Mounts and their free space.
//!
//! `statvfs` on a dead network mount can block for ever. It therefore runs on a thread of its own;
//! a mount that does not answer in time is skipped, the rest go to another thread, and the mount
//! is not queried again as long as its thread blocks.

mod duplicates;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD};

/// The time a mount gets to report its size.
const STATVFS_TIMEOUT: Duration = Duration::from_millis(500);

pub use duplicates::hidden;
pub use mainstay_mounts::{Mount, read as mounts};

/// Size and free space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    pub size_bytes: u64,
    /// With the reserve of root.
    pub free_bytes: u64,
    /// Available to unprivileged users; root may have a reserve.
    pub available_bytes: u64,
    pub inodes: u64,
    pub free_inodes: u64,
    /// The device that its files are on; `None` if it does not say.
    pub device: Option<u64>,
}

/// Queries mounts for their space and remembers which of them hang.
#[derive(Debug, Clone, Default)]
pub struct SpaceSurvey {
    hanging: Arc<Mutex<HashSet<PathBuf>>>,
}

impl SpaceSurvey {
    /// Returns the space of each mount, in order; zeros for one that does not answer or denies
    /// access.
    pub fn of(&self, mounts: &[Mount]) -> Vec<Space> {
        self.query(mounts, STATVFS_TIMEOUT, statvfs)
    }

    fn query(&self, mounts: &[Mount], timeout: Duration, query: Query) -> Vec<Space> {
        let mut answers = vec![Space::default(); mounts.len()];
        let mut next = 0;
        while next < mounts.len() {
            let targets = mounts[next..]
                .iter()
                .map(|mount| mount.target.clone())
                .collect();
            let Some(replies) = self.query_on_thread(targets, query) else {
                return answers;
            };
            while next < mounts.len() {
                let reply = self.wait_for_reply(&replies, timeout, &mounts[next].target);
                answers[next] = reply.unwrap_or_default();
                next += 1;
                if reply.is_none() {
                    // It hangs: another thread queries the rest.
                    break;
                }
            }
        }
        answers
    }

    /// Waits for the space of `target`; `None` if it hangs, which is then remembered.
    fn wait_for_reply(
        &self,
        replies: &Receiver<Space>,
        timeout: Duration,
        target: &Path,
    ) -> Option<Space> {
        if let Ok(space) = replies.recv_timeout(timeout) {
            return Some(space);
        }
        self.hanging().insert(target.to_owned());
        // The thread replies before it removes the mount from the list. Without a reply by now
        // it has yet to remove it; with one it may have done so before the insertion above.
        let late = replies.try_recv().ok()?;
        self.hanging().remove(target);
        Some(late)
    }

    /// Starts a thread that queries `targets` in order; `None` if no thread can be started.
    fn query_on_thread(&self, targets: Vec<PathBuf>, query: Query) -> Option<Receiver<Space>> {
        let (send, replies) = mpsc::channel();
        let survey = self.clone();
        std::thread::Builder::new()
            .name("statfs".to_owned())
            .stack_size(64 << 10)
            .spawn(move || {
                for target in targets {
                    if survey.hanging().contains(&target) {
                        let _ = send.send(Space::default());
                        continue;
                    }
                    let space = query(&target).unwrap_or_default();
                    let waited_for = send.send(space).is_ok();
                    survey.hanging().remove(&target);
                    if !waited_for {
                        // Another thread has taken over.
                        return;
                    }
                }
            })
            .ok()?;
        Some(replies)
    }

    /// The mounts whose query timed out and has not returned yet.
    fn hanging(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.hanging.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Query = fn(&Path) -> Option<Space>;

fn statvfs(target: &Path) -> Option<Space> {
    let stat = rustix::fs::statvfs(target).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    let about = rustix::fs::statat(CWD, target, AtFlags::NO_AUTOMOUNT);
    Some(Space {
        size_bytes: bytes(stat.f_blocks),
        free_bytes: bytes(stat.f_bfree),
        available_bytes: bytes(stat.f_bavail),
        inodes: stat.f_files,
        free_inodes: stat.f_ffree,
        device: about.ok().map(|about| about.st_dev),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(target: &str) -> Mount {
        Mount {
            device: "0:1".to_owned(),
            flags: "rw".to_owned(),
            root: PathBuf::from("/"),
            target: PathBuf::from(target),
            fs_type: "x".to_owned(),
            source: "x".to_owned(),
            options: "rw".to_owned(),
        }
    }

    #[test]
    fn the_root_is_mounted_and_has_a_size() {
        let mounts = mounts().unwrap();
        let at = mounts
            .iter()
            .position(|mount| mount.target == Path::new("/"))
            .unwrap();
        let space = SpaceSurvey::default().of(&mounts)[at];
        assert!(space.size_bytes > 0 && space.free_bytes <= space.size_bytes);
        assert!(space.available_bytes <= space.free_bytes && space.device.is_some());
    }

    /// Answers at once, except for a FIFO, which blocks until it has a writer.
    fn hangs_at_fifo(target: &Path) -> Option<Space> {
        if target
            .extension()
            .is_some_and(|extension| extension == "fifo")
        {
            std::fs::File::open(target).ok()?;
        }
        Some(Space {
            size_bytes: 1,
            ..Space::default()
        })
    }

    #[test]
    fn a_mount_that_hangs_delays_the_rest_only_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("hang.fifo");
        rustix::fs::mknodat(
            CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let mounts = [mount("/a"), mount(fifo.to_str().unwrap()), mount("/b")];
        let survey = SpaceSurvey::default();
        // Only the first query waits that long: the mount is known to hang afterwards.
        let timeout = Duration::from_secs(2);
        for _ in 0..3 {
            let answers = survey.query(&mounts, timeout, hangs_at_fifo);
            let sizes: Vec<u64> = answers.iter().map(|space| space.size_bytes).collect();
            assert_eq!(sizes, [1, 0, 1]);
        }
        assert_eq!(
            survey.hanging.lock().unwrap().len(),
            1,
            "one thread hangs, not three"
        );
        // A writer unblocks it.
        drop(std::fs::OpenOptions::new().write(true).open(&fifo).unwrap());
    }

    /// Answers only when two callers query at the same time.
    fn answers_two(_: &Path) -> Option<Space> {
        static BOTH: std::sync::Barrier = std::sync::Barrier::new(2);
        BOTH.wait();
        Some(Space {
            size_bytes: 1,
            ..Space::default()
        })
    }

    #[test]
    fn two_concurrent_callers_both_get_the_answer() {
        let survey = SpaceSurvey::default();
        let ask =
            || survey.query(&[mount("/a")], Duration::from_secs(10), answers_two)[0].size_bytes;
        let sizes = std::thread::scope(|scope| {
            let other = scope.spawn(ask);
            [ask(), other.join().unwrap()]
        });
        assert_eq!(sizes, [1, 1]);
        assert!(survey.hanging.lock().unwrap().is_empty());
    }
}
