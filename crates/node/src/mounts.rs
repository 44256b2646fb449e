//! What is mounted where, and how full it is.
//!
//! Asking a dead network mount for its size can hang for ever. So the questions are asked on a
//! thread of their own; a mount that does not answer in time is given up on, the rest are asked on
//! another thread, and it is not asked again as long as its own hangs.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long one mount may take to tell its size.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The device, or what the file system calls itself.
    pub source: String,
    pub target: PathBuf,
    pub kind: String,
}

/// How full a mount is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    pub size_bytes: u64,
    /// For ordinary users; root may have a reserve.
    pub available_bytes: u64,
}

/// Every mount of this process's view, in the kernel's order.
pub fn mounts() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mounts")?))
}

/// Lines as in `/proc/mounts`; those that are damaged are left out.
pub fn parse(table: &[u8]) -> Vec<Mount> {
    let mount = |line: &[u8]| {
        let mut words = line.split(|b| *b == b' ').map(unescape);
        let (source, target, kind) = (words.next()?, words.next()?, words.next()?);
        Some(Mount {
            source: String::from_utf8_lossy(&source).into_owned(),
            target: PathBuf::from(OsString::from_vec(target)),
            kind: String::from_utf8_lossy(&kind).into_owned(),
        })
    };
    table.split(|b| *b == b'\n').filter_map(mount).collect()
}

/// The kernel writes space, tab, newline and backslash as `\ooo`.
fn unescape(word: &[u8]) -> Vec<u8> {
    let octal = |digits: &[u8]| {
        digits.iter().try_fold(0u8, |value, digit| match digit {
            b'0'..=b'7' => value.checked_mul(8)?.checked_add(digit - b'0'),
            _ => None,
        })
    };
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, tail)) = rest.split_first() {
        match tail.get(..3).and_then(octal) {
            Some(byte) if *first == b'\\' => {
                plain.push(byte);
                rest = &tail[3..];
            }
            _ => {
                plain.push(*first);
                rest = tail;
            }
        }
    }
    plain
}

/// Asks mounts for their space, and remembers which of them hang.
#[derive(Debug, Clone, Default)]
pub struct SpaceSurvey {
    hanging: Arc<Mutex<HashSet<PathBuf>>>,
}

impl SpaceSurvey {
    /// One answer a mount, in order; zeros for one that does not answer, or may not be asked.
    pub fn of(&self, mounts: &[Mount]) -> Vec<Space> {
        self.ask(mounts, PATIENCE, statvfs)
    }

    fn ask(&self, mounts: &[Mount], patience: Duration, question: Question) -> Vec<Space> {
        let mut answers = vec![Space::default(); mounts.len()];
        let mut next = 0;
        while next < mounts.len() {
            let targets = mounts[next..]
                .iter()
                .map(|mount| mount.target.clone())
                .collect();
            let Some(replies) = self.ask_on_a_thread(targets, question) else {
                return answers;
            };
            while next < mounts.len() {
                let reply = self.wait_for_reply(&replies, patience, &mounts[next].target);
                answers[next] = reply.unwrap_or_default();
                next += 1;
                if reply.is_none() {
                    // It hangs: the others are asked without it.
                    break;
                }
            }
        }
        answers
    }

    /// `None` when it hangs, which is then remembered.
    fn wait_for_reply(
        &self,
        replies: &Receiver<Space>,
        patience: Duration,
        target: &Path,
    ) -> Option<Space> {
        if let Ok(space) = replies.recv_timeout(patience) {
            return Some(space);
        }
        self.hanging().insert(target.to_owned());
        // The thread replies before it takes the mount off the list. So without a reply by now it
        // will still do so; with one it may have done so too early.
        let late = replies.try_recv().ok()?;
        self.hanging().remove(target);
        Some(late)
    }

    /// Without a thread to spare there is no answer at all.
    fn ask_on_a_thread(
        &self,
        targets: Vec<PathBuf>,
        question: Question,
    ) -> Option<Receiver<Space>> {
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
                    let space = question(&target).unwrap_or_default();
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

    /// Mounts that somebody has given up on.
    fn hanging(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.hanging.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Question = fn(&Path) -> Option<Space>;

fn statvfs(target: &Path) -> Option<Space> {
    let stat = rustix::fs::statvfs(target).ok()?;
    Some(Space {
        size_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
        available_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mount(target: &str) -> Mount {
        Mount {
            source: "x".to_owned(),
            target: PathBuf::from(target),
            kind: "x".to_owned(),
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
        assert!(space.size_bytes > 0 && space.available_bytes <= space.size_bytes);
    }

    #[test]
    fn names_with_spaces_and_backslashes_come_back_as_they_are() {
        let table = b"/dev/a\\040b /mnt/c\\011d\\134e ext4 rw 0 0\ndamaged\n";
        let mounts = parse(table);
        assert_eq!(mounts.len(), 1);
        assert_eq!(mounts[0].source, "/dev/a b");
        assert_eq!(mounts[0].target, Path::new("/mnt/c\td\\e"));
    }

    /// Answers at once, except for the mount that hangs until its fifo gets a writer.
    fn hangs_at_fifo(target: &Path) -> Option<Space> {
        if target
            .extension()
            .is_some_and(|extension| extension == "fifo")
        {
            std::fs::File::open(target).ok()?;
        }
        Some(Space {
            size_bytes: 1,
            available_bytes: 1,
        })
    }

    #[test]
    fn a_mount_that_hangs_delays_the_rest_only_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("hang.fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let mounts = [mount("/a"), mount(fifo.to_str().unwrap()), mount("/b")];
        let survey = SpaceSurvey::default();
        let patience = Duration::from_millis(50);
        for _ in 0..3 {
            let answers = survey.ask(&mounts, patience, hangs_at_fifo);
            let sizes: Vec<u64> = answers.iter().map(|space| space.size_bytes).collect();
            assert_eq!(sizes, [1, 0, 1]);
        }
        assert_eq!(
            survey.hanging.lock().unwrap().len(),
            1,
            "one thread hangs, not three"
        );
        // A writer lets it go.
        drop(std::fs::OpenOptions::new().write(true).open(&fifo).unwrap());
    }

    /// Answers only when two are asking at the same time.
    fn answers_two(_: &Path) -> Option<Space> {
        static BOTH: std::sync::Barrier = std::sync::Barrier::new(2);
        BOTH.wait();
        Some(Space {
            size_bytes: 1,
            available_bytes: 1,
        })
    }

    #[test]
    fn two_who_ask_at_once_both_get_the_answer() {
        let survey = SpaceSurvey::default();
        let ask = || survey.ask(&[mount("/a")], Duration::from_secs(10), answers_two)[0].size_bytes;
        let sizes = std::thread::scope(|scope| {
            let other = scope.spawn(ask);
            [ask(), other.join().unwrap()]
        });
        assert_eq!(sizes, [1, 1]);
        assert!(survey.hanging.lock().unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn any_table_is_survived(table in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&table);
        }
    }
}
