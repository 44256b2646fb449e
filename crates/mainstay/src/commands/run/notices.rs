//! Messages of the command itself while the program writes to the same terminal.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{note_with_end, warn_with_end};

/// Puts each message on a line of its own.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// The terminal is in raw mode, in which a newline does not return to the first column.
    raw: AtomicBool,
    /// The last output of the program did not end its line.
    mid_line: AtomicBool,
}

impl Notices {
    pub(super) fn set_raw(&self, raw: bool) {
        self.raw.store(raw, Ordering::Relaxed);
    }

    /// Takes note of what the program has written.
    pub(super) fn written(&self, output: &[u8]) {
        if let Some(last) = output.last() {
            self.mid_line.store(*last != b'\n', Ordering::Relaxed);
        }
    }

    pub(super) fn warn(&self, message: &str) {
        self.begin_line();
        warn_with_end(message, self.line_end());
    }

    pub(super) fn note(&self, message: &str) {
        self.begin_line();
        note_with_end(message, self.line_end());
    }

    /// Ends the line of the program, if it is on the terminal of the messages.
    pub(super) fn begin_line(&self) {
        let mid_line = self.mid_line.swap(false, Ordering::Relaxed);
        if mid_line && io::stdout().is_terminal() && io::stderr().is_terminal() {
            eprint!("{}", self.line_end());
        }
    }

    fn line_end(&self) -> &'static str {
        match self.raw.load(Ordering::Relaxed) && io::stderr().is_terminal() {
            true => "\r\n",
            false => "\n",
        }
    }
}
