//! The terminal of the command, in raw mode while a program runs on a terminal of the node.

use std::io::{self, IsTerminal, Stdin};

use mainstay_api::runtime::TerminalSize;
use rustix::process::getpgrp;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr};

use crate::failure::{Failure, Outcome};

/// Raw mode of standard input; dropping it restores the mode before.
pub(super) struct RawTerminal {
    stdin: Stdin,
    before: Termios,
}

impl RawTerminal {
    /// Fails if standard input is not a terminal.
    pub(super) fn enter() -> Outcome<Self> {
        let stdin = io::stdin();
        check()?;
        let before = tcgetattr(&stdin).map_err(io::Error::from)?;
        let mut raw = before.clone();
        raw.make_raw();
        // What was typed ahead is for the program.
        tcsetattr(&stdin, OptionalActions::Now, &raw).map_err(io::Error::from)?;
        Ok(Self { stdin, before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.stdin, OptionalActions::Drain, &self.before);
    }
}

pub(super) fn check() -> Outcome {
    if io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::usage(
        "--tty needs a terminal as stdin; without --tty, stdin can be a pipe or a file",
    ))
}

/// Returns whether standard input is the controlling terminal and another process group is in its
/// foreground. A read would stop this one.
pub(super) fn is_in_background() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground != getpgrp())
}

/// Returns the size of the terminal; that of a classic one if it is unknown.
pub(super) fn size() -> TerminalSize {
    let size = tcgetwinsize(io::stdin()).ok();
    let size = size.filter(|size| size.ws_row > 0 && size.ws_col > 0);
    TerminalSize {
        rows: size.map_or(24, |size| size.ws_row.into()),
        columns: size.map_or(80, |size| size.ws_col.into()),
    }
}
