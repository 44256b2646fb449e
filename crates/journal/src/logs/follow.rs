//! Wake-ups of log followers when lines are written.
//!
//! One inotify instance serves all followers (the kernel allows a user only 128), with one watch
//! per log. A single thread reads it while anything is followed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use inotify::{Event, EventMask, Inotify, WatchDescriptor, WatchMask, Watches};
use tokio::sync::watch;

/// The size of a read, enough for many events with short names.
const EVENT_BUFFER: usize = 16 * 1024;

#[derive(Clone, Debug)]
pub(super) struct Followers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    watching: Mutex<Option<Watching>>,
}

/// One follower of one log.
#[derive(Debug)]
pub(super) struct Follower {
    followers: Followers,
    descriptor: WatchDescriptor,
    changes: watch::Receiver<()>,
}

/// The error of following a log that was deleted.
#[derive(Debug)]
pub(super) struct Gone;

impl Follower {
    /// Marks everything written up to now as read.
    pub(super) fn mark_seen(&mut self) {
        self.changes.mark_unchanged();
    }

    /// Waits until something may have been written since the last mark.
    pub(super) async fn changed(&mut self) -> Result<(), Gone> {
        self.changes.changed().await.map_err(|_| Gone)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some(watching) = &mut *self.followers.lock() {
            watching.leave(&self.descriptor);
        }
    }
}

impl Followers {
    pub(super) fn new(root: &Path) -> Self {
        Self(Arc::new(Shared {
            root: root.to_owned(),
            watching: Mutex::new(None),
        }))
    }

    /// Starts to follow a directory, below the root or at an absolute path; every write after this
    /// wakes the follower.
    pub(super) fn join(&self, log: &Path) -> io::Result<Follower> {
        let mut guard = self.lock();
        let (descriptor, changes) = match &mut *guard {
            Some(watching) => watching.join(&self.0.root, log)?,
            none => {
                let inotify = Inotify::init()?;
                let mut watching = Watching::new(&inotify, &self.0.root)?;
                let joined = watching.join(&self.0.root, log)?;
                let followers = self.clone();
                thread::Builder::new()
                    .name("log-follow".to_owned())
                    .spawn(move || followers.wake_until_unused(inotify))?;
                *none = Some(watching);
                joined
            }
        };
        Ok(Follower {
            followers: self.clone(),
            descriptor,
            changes,
        })
    }

    /// The loop of the thread. The removal of the last watch wakes it for the last time.
    fn wake_until_unused(&self, mut inotify: Inotify) {
        let mut buffer = [0; EVENT_BUFFER];
        loop {
            let events = inotify.read_events_blocking(&mut buffer);
            let mut guard = self.lock();
            let unused = match (&mut *guard, events) {
                (Some(watching), Ok(events)) => {
                    events.for_each(|event| watching.handle(&self.0.root, &event));
                    watching.logs.is_empty()
                }
                (Some(_), Err(error)) => error.kind() != io::ErrorKind::Interrupted,
                (None, _) => true,
            };
            if unused {
                // Both hold the instance open. It must be closed before another is created, so
                // that there is never more than one.
                *guard = None;
                drop(inotify);
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Watching>> {
        self.0
            .watching
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The inotify instance and its thread, while anything is followed.
struct Watching {
    watches: Watches,
    /// Watched to learn that a log's directory was deleted: followers have files in it open,
    /// and that keeps the kernel from reporting it on the directory itself.
    root: WatchDescriptor,
    logs: HashMap<WatchDescriptor, Watched>,
}

struct Watched {
    directory: PathBuf,
    followers: usize,
    /// Dropped when the log's directory is gone.
    changes: watch::Sender<()>,
}

impl Watching {
    fn new(inotify: &Inotify, root: &Path) -> io::Result<Self> {
        let mut watches = inotify.watches();
        let deleted = WatchMask::DELETE | WatchMask::MOVED_FROM | WatchMask::ONLYDIR;
        let root = watches.add(root, deleted)?;
        Ok(Self {
            watches,
            root,
            logs: HashMap::new(),
        })
    }

    fn join(
        &mut self,
        root: &Path,
        log: &Path,
    ) -> io::Result<(WatchDescriptor, watch::Receiver<()>)> {
        let descriptor = self.watch(root, log)?;
        let watched = self
            .logs
            .entry(descriptor.clone())
            .or_insert_with(|| Watched {
                directory: log.to_owned(),
                followers: 0,
                changes: watch::Sender::new(()),
            });
        watched.followers += 1;
        Ok((descriptor, watched.changes.subscribe()))
    }

    /// Adds a watch; returns the same watch descriptor for a directory that is already watched.
    fn watch(&mut self, root: &Path, log: &Path) -> io::Result<WatchDescriptor> {
        let written = WatchMask::MODIFY | WatchMask::CREATE | WatchMask::DELETE;
        let written = written | WatchMask::ONLYDIR | WatchMask::DONT_FOLLOW;
        self.watches.add(root.join(log), written)
    }

    fn leave(&mut self, descriptor: &WatchDescriptor) {
        let Some(watched) = self.logs.get_mut(descriptor) else {
            return;
        };
        watched.followers -= 1;
        if watched.followers == 0 {
            self.forget(descriptor);
        }
    }

    fn forget(&mut self, descriptor: &WatchDescriptor) {
        self.logs.remove(descriptor);
        // Fails if the kernel has removed the watch itself.
        let _ = self.watches.remove(descriptor.clone());
    }

    fn handle(&mut self, root: &Path, event: &Event<&OsStr>) {
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            for watched in self.logs.values() {
                watched.changes.send_replace(());
            }
        } else if event.wd == self.root {
            if let Some(name) = event.name {
                self.forget_deleted(root, Path::new(name));
            }
        } else if event.mask.contains(EventMask::IGNORED) {
            self.logs.remove(&event.wd);
        } else if let Some(watched) = self.logs.get(&event.wd) {
            watched.changes.send_replace(());
        }
    }

    /// Handles the deletion of a directory; another of that name may have been created and
    /// followed since.
    fn forget_deleted(&mut self, root: &Path, name: &Path) {
        let present = self.watch(root, name).ok();
        let deleted: Vec<_> = self
            .logs
            .iter()
            .filter(|(descriptor, log)| {
                log.directory == name && Some(*descriptor) != present.as_ref()
            })
            .map(|(descriptor, _)| descriptor.clone())
            .collect();
        for descriptor in deleted {
            self.forget(&descriptor);
        }
        if let Some(present) = present
            && !self.logs.contains_key(&present)
        {
            self.forget(&present);
        }
    }
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watching")
            .field("logs", &self.logs.len())
            .finish_non_exhaustive()
    }
}
