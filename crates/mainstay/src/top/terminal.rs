//! The terminal: taken when the view opens, and given back as it was whatever happens.

use std::io::{self, Write};

use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::mpsc;

use super::app::App;
use super::view::{Moment, Theme, draw};

#[derive(Debug)]
pub struct Terminal {
    inner: DefaultTerminal,
}

impl Terminal {
    /// Takes the terminal. A panic gives it back before it says anything.
    pub fn take() -> io::Result<Self> {
        let inner = ratatui::try_init()?;
        Ok(Self { inner })
    }

    /// Draws what has changed, in one write.
    pub fn draw(&mut self, app: &mut App, theme: Theme, moment: &Moment) -> io::Result<()> {
        self.inner.autoresize()?;
        let size = self.inner.size()?;
        app.resize(size.width, size.height);
        self.inner
            .draw(|frame| draw(frame, app, theme, moment))
            .map(|_| ())
    }

    /// Makes the next drawing a complete one.
    pub fn forget(&mut self) -> io::Result<()> {
        self.inner.clear()
    }

    /// Stops this process as Ctrl-Z does; returns when it goes on.
    pub fn suspend(&mut self) -> io::Result<()> {
        give_back()?;
        // Takes effect before it returns. Where no shell could ever continue us, the kernel
        // ignores it.
        kill_process(getpid(), Signal::TSTP)?;
        self.retake()
    }

    /// Takes the terminal again after somebody else had it.
    pub fn retake(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)?;
        self.forget()
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

/// Keys and changes of size, as they come. Reading a terminal blocks, so a thread of its own does
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
