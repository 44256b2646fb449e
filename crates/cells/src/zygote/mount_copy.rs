//! The mounts that cells start with: a masked copy of a mount namespace that follows the host's.
//!
//! Nothing appears in the copy, so that a shim that is forked from it has no mounts to look for. It
//! is made again once the host has mounted or unmounted something, which the kernel reports.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::cell_mounts::{OWN_NAMESPACE, failure, new_namespace};
use super::masks::{Failure, Masks, View, exists};

/// Rounds of masks over a copy whose mount points are being removed.
const MAX_ROUNDS: usize = 3;

pub(super) struct MountCopy {
    followed: File,
    followed_table: MountTable,
    /// The table of the copy, unless it has to be made again.
    copied: Option<MountTable>,
    /// Where directories to hide would appear that did not exist.
    absent: Vec<PathBuf>,
}

/// An open mount table, which the kernel marks as changed.
struct MountTable(File);

impl MountCopy {
    /// Follows the mount namespace of this process, and moves into a copy of it.
    pub(super) fn of_current(masks: &Masks) -> Result<Self, Failure> {
        let failed = |error| ("open the mount namespace".to_owned(), error);
        let mut copy = Self {
            followed: File::open(OWN_NAMESPACE).map_err(failed)?,
            followed_table: MountTable::open()?,
            copied: None,
            absent: Vec::new(),
        };
        copy.refresh(masks)?;
        Ok(copy)
    }

    /// Moves this process into a new copy if there is something new to mask.
    pub(super) fn refresh(&mut self, masks: &Masks) -> Result<(), Failure> {
        // Both are asked: it forgets that it has changed.
        let followed = self.followed_table.has_changed()?;
        let copied = match &self.copied {
            Some(table) => table.has_changed()?,
            None => true,
        };
        if !followed && !copied && !self.absent.iter().any(|path| exists(path)) {
            return Ok(());
        }
        self.leave()?;
        new_namespace()?;
        // A mount that the host makes later could show what is masked here, if only for a moment.
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private)
            .map_err(failure("change the mount propagation of", Path::new("/")))?;
        self.absent = masks.absent()?;
        masks.apply(View::Cell)?;
        // The removal of a directory unmounts what hides it, also here.
        let table = MountTable::open()?;
        for _ in 0..MAX_ROUNDS {
            masks.apply(View::Cell)?;
            if !table.has_changed()? {
                self.copied = Some(table);
                break;
            }
        }
        Ok(())
    }

    /// Waits until `other` is readable. Leaves a copy that differs from the host's mounts at once: a
    /// file system that the host unmounts must not stay in use here.
    pub(super) fn wait_for(&mut self, other: BorrowedFd<'_>) -> Result<(), Failure> {
        while self.copied.is_some() {
            let mut fds = [
                PollFd::from_borrowed_fd(other, PollFlags::IN),
                PollFd::new(&self.followed_table.0, PollFlags::PRI),
            ];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(("watch the mount table".to_owned(), errno.into())),
                Ok(_) => {}
            }
            let [requested, changed] = fds.map(|fd| !fd.revents().is_empty());
            if changed {
                self.leave()?;
            }
            if requested {
                break;
            }
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<(), Failure> {
        self.copied = None;
        let kind = Some(LinkNameSpaceType::Mount);
        move_into_link_name_space(self.followed.as_fd(), kind)
            .map_err(|errno| ("join a mount namespace".to_owned(), errno.into()))
    }
}

impl MountTable {
    /// Opens that of the calling thread's namespace.
    fn open() -> Result<Self, Failure> {
        let opened = File::open("/proc/thread-self/mountinfo");
        let failed = |error| ("open the mount table".to_owned(), error);
        Ok(Self(opened.map_err(failed)?))
    }

    /// Returns whether it has changed since it was opened or since the last call.
    fn has_changed(&self) -> Result<bool, Failure> {
        let mut table = [PollFd::new(&self.0, PollFlags::PRI)];
        loop {
            match poll(&mut table, Some(&Timespec::default())) {
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(("watch the mount table".to_owned(), errno.into())),
                Ok(_) => return Ok(!table[0].revents().is_empty()),
            }
        }
    }
}
