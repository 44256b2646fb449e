//! The terminal: taken when the view opens, and given back as it was whatever happens.

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
use super::view::{Moment, Theme, draw};

#[derive(Debug)]
pub struct Terminal {
    inner: DefaultTerminal,
    /// What stands on it is not what was drawn last.
    stale: bool,
}

impl Terminal {
    /// Takes the terminal. A panic gives it back before it says anything.
    pub fn take() -> io::Result<Self> {
        let inner = ratatui::try_init()?;
        let stale = false;
        Ok(Self { inner, stale })
    }

    /// Draws what has changed; terminals that can show it all at once.
    pub fn draw(&mut self, app: &mut App, theme: Theme, moment: &Moment) -> io::Result<()> {
        let size = self.inner.size()?;
        app.resize(size.width, size.height);
        queue!(io::stdout(), BeginSynchronizedUpdate)?;
        if std::mem::take(&mut self.stale) {
            self.inner.resize(size.into())?;
        }
        self.inner.draw(|frame| draw(frame, app, theme, moment))?;
        execute!(io::stdout(), EndSynchronizedUpdate)
    }

    /// Makes the next drawing a complete one.
    pub fn forget(&mut self) {
        self.stale = true;
    }

    /// Stops this process as Ctrl-Z does; returns when it goes on.
    pub fn suspend(&mut self) -> io::Result<()> {
        give_back()?;
        // To this thread, so that it takes effect before this returns: one to the process may be
        // taken by another thread while this one runs on. Where no shell could ever continue us,
        // the kernel ignores it.
        raise(Signal::SIGTSTP)?;
        self.retake()
    }

    /// Takes the terminal again after somebody else had it, and may have set it up their way.
    pub fn retake(&mut self) -> io::Result<()> {
        disable_raw_mode()?;
        enable_raw_mode()?;
        self.forget();
        execute!(io::stdout(), EnterAlternateScreen)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing back.
        let _ = give_back();
    }
}

fn give_back() -> io::Result<()> {
    disable_raw_mode()?;
    execute!(io::stdout(), LeaveAlternateScreen, Show)?;
    io::stdout().flush()
}

/// Keys, as they come. Reading a terminal blocks, so a thread of its own does
/// it; it ends with the process.
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
