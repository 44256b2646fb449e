//! The terminal: set up when the view opens, and restored however it ends.

use std::io::{self, Write};

use nix::sys::signal::{Signal, raise};
use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{execute, queue};
use tokio::sync::mpsc;

use super::app::App;
use super::view::{Clock, Theme, draw};

#[derive(Debug)]
pub struct Terminal {
    inner: DefaultTerminal,
    /// The content differs from the last frame.
    stale: bool,
}

impl Terminal {
    /// Enters raw mode and the alternate screen. A panic restores the terminal before it prints.
    pub fn enter() -> io::Result<Self> {
        let inner = ratatui::try_init()?;
        let stale = false;
        Ok(Self { inner, stale })
    }

    /// Draws a frame, at once on terminals with synchronized updates.
    pub fn draw(&mut self, app: &mut App, theme: Theme, clock: &Clock) -> io::Result<()> {
        let size = self.inner.size()?;
        app.resize(size.width, size.height);
        queue!(io::stdout(), BeginSynchronizedUpdate)?;
        if std::mem::take(&mut self.stale) {
            self.inner.resize(size.into())?;
        }
        self.inner.draw(|frame| draw(frame, app, theme, clock))?;
        execute!(io::stdout(), EndSynchronizedUpdate)
    }

    /// Makes the next frame a complete one.
    pub fn invalidate(&mut self) {
        self.stale = true;
    }

    /// Stops this process with SIGTSTP; returns when it continues.
    pub fn suspend(&mut self) -> io::Result<()> {
        restore()?;
        // To this thread, so that it stops before this returns: a signal to the process may be
        // delivered to another thread while this one runs on. The kernel ignores it in an orphaned
        // process group, which no shell could continue.
        raise(Signal::SIGTSTP)?;
        self.reenter()
    }

    /// Enters the terminal again after another program used it.
    pub fn reenter(&mut self) -> io::Result<()> {
        disable_raw_mode()?;
        enable_raw_mode()?;
        self.invalidate();
        execute!(io::stdout(), EnterAlternateScreen)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A closed terminal cannot be restored.
        let _ = restore();
    }
}

fn restore() -> io::Result<()> {
    disable_raw_mode()?;
    execute!(io::stdout(), LeaveAlternateScreen, Show)?;
    io::stdout().flush()
}

/// Returns key events. Reading a terminal blocks, so a thread does it; it ends with the process.
pub fn events() -> io::Result<mpsc::Receiver<Event>> {
    let (send, events) = mpsc::channel(64);
    std::thread::Builder::new()
        .name("keys".to_owned())
        .spawn(move || {
            while let Ok(event) = event::read() {
                if send.blocking_send(event).is_err() {
                    return;
                }
            }
        })?;
    Ok(events)
}
