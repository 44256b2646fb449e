//! The watch thread: one thread that waits for the records and the exits of all shims.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread;

use inotify::{EventMask, Inotify, WatchMask};
use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd, poll};

use super::Inner;
use super::cell::{Cell, ShimProcess};

/// Fits many file names in one read.
const INOTIFY_BUFFER_BYTES: usize = 16 * 1024;

/// The engine's handle of the watch thread. The thread exits when it is dropped.
#[derive(Debug)]
pub(super) struct WatchHandle {
    /// An epoll set of the pidfds of all shims.
    shims: Arc<OwnedFd>,
    exit: Arc<OwnedFd>,
}

/// The file descriptors that the thread waits for.
pub(super) struct WatchThread {
    records: Inotify,
    shims: Arc<OwnedFd>,
    exit: Arc<OwnedFd>,
}

impl WatchHandle {
    pub(super) fn new(records: &Path) -> io::Result<(Self, WatchThread)> {
        let inotify = Inotify::init()?;
        // A shim that cannot write a record changes the attributes of the old one.
        let events = WatchMask::MOVED_TO | WatchMask::ATTRIB;
        inotify.watches().add(records, events)?;
        let shims = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let exit = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let handle = Self {
            shims: Arc::clone(&shims),
            exit: Arc::clone(&exit),
        };
        let thread = WatchThread {
            records: inotify,
            shims,
            exit,
        };
        Ok((handle, thread))
    }
}

impl Drop for WatchHandle {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.exit, &1_u64.to_ne_bytes());
    }
}

impl WatchThread {
    pub(super) fn start(mut self, inner: Weak<Inner>) -> io::Result<()> {
        let builder = thread::Builder::new().name("cells".to_owned());
        builder.spawn(move || while self.wait(&inner).is_some() {})?;
        Ok(())
    }

    /// Waits for and handles the next events; `None` when the engine is dropped.
    fn wait(&mut self, inner: &Weak<Inner>) -> Option<()> {
        let mut fds = [
            PollFd::from_borrowed_fd(self.records.as_fd(), PollFlags::IN),
            PollFd::new(&self.shims, PollFlags::IN),
            PollFd::new(&self.exit, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "cannot watch cells any more; restart the node");
                return None;
            }
        }
        let ready = fds.each_ref().map(|fd| !fd.revents().is_empty());
        let inner = inner.upgrade()?;
        if ready[0] {
            self.handle_records(&inner);
        }
        if ready[1] {
            self.handle_shim_exits(&inner);
        }
        Some(())
    }

    fn handle_records(&mut self, inner: &Arc<Inner>) {
        let mut buffer = [0; INOTIFY_BUFFER_BYTES];
        let Ok(events) = self.records.read_events(&mut buffer) else {
            return;
        };
        let mut overflow = false;
        for event in events {
            overflow |= event.mask.contains(EventMask::Q_OVERFLOW);
            let Some(name) = event.name.and_then(OsStr::to_str) else {
                continue;
            };
            if event.mask.contains(EventMask::ATTRIB) {
                inner.handle_unsaved_record(name);
            } else {
                inner.handle_record_file(name);
            }
        }
        if overflow {
            inner.handle_all_record_files();
        }
    }

    /// Handles each exit on a thread of its own: it writes records, and a stalled disk must not keep
    /// this thread from the other cells. Shims exit by a Free or by accident, so seldom here.
    fn handle_shim_exits(&self, inner: &Arc<Inner>) {
        let mut exited = Vec::with_capacity(64);
        let now = rustix::event::Timespec::default();
        let buffer = rustix::buffer::spare_capacity(&mut exited);
        if epoll::wait(&self.shims, buffer, Some(&now)).is_err() {
            return;
        }
        for event in exited {
            let serial = event.data.u64();
            let cells: Vec<Arc<Cell>> = inner.cells().values().cloned().collect();
            let Some(cell) = cells.into_iter().find(|cell| cell.serial == serial) else {
                continue;
            };
            // A Free waits for the exit itself, and handles it.
            if cell.state().is_being_freed() {
                continue;
            }
            let (engine, its) = (Arc::clone(inner), Arc::clone(&cell));
            let builder = thread::Builder::new().name("cell-shim-exit".to_owned());
            if builder
                .spawn(move || engine.handle_shim_exit(&its))
                .is_err()
            {
                inner.handle_shim_exit(&cell);
            }
        }
    }
}

impl Inner {
    /// Watches the exit of a shim from now on.
    pub(super) fn watch_shim(&self, cell: &Cell, shim: ShimProcess) {
        let data = epoll::EventData::new_u64(cell.serial);
        // One-shot: the pidfd of an exited process stays readable.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        if let Err(error) = epoll::add(&self.watch.shims, &shim.pidfd, data, flags) {
            tracing::warn!(cell = %cell.name(), %error, "cannot watch the shim of a cell");
        }
        cell.state().shim = Some(shim);
    }
}
