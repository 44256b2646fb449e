//! One thread that waits for all cells: for records that shims write, and for shims that end.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread;

use inotify::{EventMask, Inotify, WatchMask};
use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd, poll};

use super::Inner;
use super::cell::{Cell, Shim};
use super::places::{executable_group, is_of_executable};
use crate::name::ExecutableName;
use crate::record::{self, End, ExecutableRecord, HowEnded};
use crate::spec::Namespace;

/// Room for many names in one read.
const EVENT_BUFFER: usize = 16 * 1024;

/// What others tell the thread by.
#[derive(Debug)]
pub(super) struct Watch {
    /// The handles of all shims.
    shims: Arc<OwnedFd>,
    /// Written to when the engine goes.
    end: Arc<OwnedFd>,
}

/// What the thread waits for.
pub(super) struct Watching {
    records: Inotify,
    shims: Arc<OwnedFd>,
    end: Arc<OwnedFd>,
}

impl Watch {
    pub(super) fn new(records: &Path) -> io::Result<(Self, Watching)> {
        let inotify = Inotify::init()?;
        inotify.watches().add(records, WatchMask::MOVED_TO)?;
        let shims = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let watch = Self {
            shims: Arc::clone(&shims),
            end: Arc::clone(&end),
        };
        let watching = Watching {
            records: inotify,
            shims,
            end,
        };
        Ok((watch, watching))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
    }
}

impl Watching {
    pub(super) fn start(mut self, inner: Weak<Inner>) -> io::Result<()> {
        let builder = thread::Builder::new().name("cells".to_owned());
        builder.spawn(move || while self.turn(&inner).is_some() {})?;
        Ok(())
    }

    /// `None` when the engine is gone.
    fn turn(&mut self, inner: &Weak<Inner>) -> Option<()> {
        let mut fds = [
            PollFd::from_borrowed_fd(self.records.as_fd(), PollFlags::IN),
            PollFd::new(&self.shims, PollFlags::IN),
            PollFd::new(&self.end, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "cells are not watched any more; restart the node");
                return None;
            }
        }
        let ready = fds.each_ref().map(|fd| !fd.revents().is_empty());
        let inner = inner.upgrade()?;
        if ready[0] {
            self.take_records(&inner);
        }
        if ready[1] {
            self.bury_shims(&inner);
        }
        Some(())
    }

    fn take_records(&mut self, inner: &Inner) {
        let mut buffer = [0; EVENT_BUFFER];
        let Ok(events) = self.records.read_events(&mut buffer) else {
            return;
        };
        let mut overflow = false;
        for event in events {
            overflow |= event.mask.contains(EventMask::Q_OVERFLOW);
            if let Some(name) = event.name.and_then(OsStr::to_str) {
                inner.take_record(name);
            }
        }
        if overflow {
            inner.take_all_records();
        }
    }

    fn bury_shims(&self, inner: &Inner) {
        let mut ended = Vec::with_capacity(64);
        let now = rustix::event::Timespec::default();
        let buffer = rustix::buffer::spare_capacity(&mut ended);
        if epoll::wait(&self.shims, buffer, Some(&now)).is_err() {
            return;
        }
        for event in ended {
            let serial = event.data.u64();
            let cells: Vec<Arc<Cell>> = inner.cells().values().cloned().collect();
            if let Some(cell) = cells.iter().find(|cell| cell.serial == serial) {
                inner.forget_dead_shim(cell);
            }
        }
    }
}

impl Inner {
    /// Watches over a shim from now on.
    pub(super) fn adopt_shim(&self, cell: &Cell, shim: Shim) {
        let data = epoll::EventData::new_u64(cell.serial);
        // Once: a handle that has told of its end would tell it for ever.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        if let Err(error) = epoll::add(&self.watch.shims, &shim.pidfd, data, flags) {
            tracing::warn!(cell = %cell.name(), %error, "the first process of a cell is not watched");
        }
        cell.state().shim = Some(shim);
    }

    /// If the first process of the cell has ended, so has everything in it: says so in the
    /// records, which have no other writer now. False if it lives.
    pub(super) fn forget_dead_shim(&self, cell: &Cell) -> bool {
        {
            let mut state = cell.state();
            let ended = state.shim.as_ref().map(|shim| has_ended(&shim.pidfd));
            // Whoever frees the cell has ended it.
            if ended != Some(true) || state.is_being_freed() {
                return false;
            }
            state.shim = None;
        }
        tracing::warn!(cell = %cell.name(), "the first process of a cell has ended");
        self.bury_executables(cell);
        true
    }

    /// Ends in the records what can no longer run, and what of it runs on where the host's
    /// processes are shared: nobody reads its output or would see its end.
    pub(super) fn bury_executables(&self, cell: &Cell) {
        if let (true, Ok(groups)) = (cell.shares(Namespace::Pid), self.cgroups()) {
            for group in groups.inside(cell.name().as_str()) {
                if is_of_executable(&group)
                    && let Err(error) = groups.kill(&group)
                {
                    tracing::warn!(cell = %cell.name(), %error, "what is left cannot be ended");
                }
            }
        }
        let known: Vec<ExecutableName> = cell.state().executables.keys().cloned().collect();
        for name in known {
            // The shim may have written more than is known here before it ended.
            self.read_record(cell, &name);
            let Some(record) = self.bury(cell, &name) else {
                continue;
            };
            self.take(cell, record);
        }
    }

    /// Writes that an executable was lost, if it ran.
    fn bury(&self, cell: &Cell, name: &ExecutableName) -> Option<ExecutableRecord> {
        // Held to the end: a record must not be written when it has just been removed.
        let state = cell.state();
        let record = state.executables.get(name);
        let mut record = (**record.filter(|record| record.run.is_running())?).clone();
        if state.is_being_freed() {
            return None;
        }
        record.run.end = Some(End {
            at: mainstay_journal::Timestamp::now().as_nanos(),
            how: HowEnded::Lost,
        });
        let path = self.places.executable(cell.name(), name);
        if let Err(error) = record::write(&path, &record) {
            tracing::warn!(cell = %cell.name(), %error, "the end of an executable is not kept");
        }
        Some(record)
    }

    /// Takes over the record in a file of that name.
    fn take_record(&self, file: &str) {
        if !file.ends_with(".json") {
            return;
        }
        let read = record::read::<ExecutableRecord>(&self.places.executables.join(file));
        // Gone again, with its cell.
        let Ok(record) = read else {
            return;
        };
        let cell = self.cells().get(&record.cell).cloned();
        if let Some(cell) = cell {
            // Once more: what was read may be of an earlier cell of that name, but its files were
            // gone before this one was there.
            self.read_record(&cell, &record.name);
            // Does nothing while it runs.
            self.remove_group(&cell, &record.name);
        }
    }

    fn take_all_records(&self) {
        for entry in self
            .places
            .executables
            .read_dir()
            .into_iter()
            .flatten()
            .flatten()
        {
            if let Some(name) = entry.file_name().to_str() {
                self.take_record(name);
            }
        }
    }

    /// Reads what the shim has written of an executable.
    pub(super) fn read_record(&self, cell: &Cell, name: &ExecutableName) {
        let read = record::read(&self.places.executable(cell.name(), name));
        if let Ok(record) = read {
            self.take(cell, record);
        }
    }

    /// Removes the group of an executable that has ended, unless it left something in it. Where
    /// another is just being started, that is left to whoever starts it.
    pub(super) fn remove_group(&self, cell: &Cell, name: &ExecutableName) {
        cell.state().groups_left.push(name.clone());
        if let Ok(_order) = cell.order.try_lock() {
            self.remove_groups_left(cell);
        }
    }

    /// Whoever calls this has the cell's order: what is not running now does not begin to.
    pub(super) fn remove_groups_left(&self, cell: &Cell) {
        let mut ended = std::mem::take(&mut cell.state().groups_left);
        ended.retain(|name| cell.state().running(name).is_none());
        let Ok(groups) = self.cgroups() else {
            return;
        };
        for name in ended {
            let _ = groups.remove_members(&executable_group(cell.name(), &name));
        }
    }
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    let now = rustix::event::Timespec::default();
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}
