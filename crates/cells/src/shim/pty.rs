//! Pseudoterminals of executables.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{Gid, Mode, OFlags, Uid, fchmod, fchown};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::spec::TerminalSize;

/// Opens a pseudoterminal in the cell's `/dev/pts`: a non-blocking master, and the terminal itself,
/// which belongs to the user that will use it.
pub(super) fn open(size: TerminalSize, uid: u32, gid: u32) -> io::Result<(File, File)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    unlockpt(&master)?;
    // By the master, not by a path that a process inside could replace.
    let terminal = ioctl_tiocgptpeer(&master, flags)?;
    fchown(
        &terminal,
        Some(Uid::from_raw(uid)),
        Some(Gid::from_raw(gid)),
    )?;
    fchmod(&terminal, Mode::RUSR | Mode::WUSR | Mode::WGRP)?;
    let master = File::from(master);
    resize(&master, size.rows, size.columns)?;
    let flags = rustix::fs::fcntl_getfl(&master)?;
    rustix::fs::fcntl_setfl(&master, flags | OFlags::NONBLOCK)?;
    Ok((master, File::from(terminal)))
}

/// Sets the size of a terminal; the kernel sends SIGWINCH to its foreground.
pub(super) fn resize(master: impl AsFd, rows: u16, columns: u16) -> io::Result<()> {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(tcsetwinsize(master, size)?)
}
