//! The event loop of the live view: keys, signals and updates change the state, frames draw it.

use std::time::Duration;

use jiff::Zoned;
use mainstay_client::{Client, Options, chain};
use ratatui::crossterm::event::Event;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior};

use super::Error;
use super::app::{App, Effect};
use super::keys::{Action, action};
use super::poll::{Detail, Update};
use super::terminal::{Terminal, events};
use super::updates::Updates;
use super::view::{Clock, Theme};

/// Minimum time between two frames.
const FRAME_INTERVAL: Duration = Duration::from_millis(40);

/// Shows the live view until the user quits or a signal ends it.
pub async fn run(options: &Options, interval: Duration, warn: impl Fn(&str)) -> Result<(), Error> {
    let client = Client::connect(options, warn).await?;
    let detail = match client.nodes().len() {
        0 | 1 => Detail::Node(0),
        _ => Detail::None,
    };
    let mut updates = Updates::start(client, options, interval, detail);
    let mut app = App::new(updates.names.clone(), 0, 0);
    updates.first_answer(&mut app).await?;
    let event_loop = EventLoop {
        app,
        updates,
        terminal: Terminal::enter().map_err(Error::Terminal)?,
        theme: Theme::from_environment(),
    };
    Ok(event_loop.run().await?)
}

struct EventLoop {
    app: App,
    updates: Updates,
    terminal: Terminal,
    theme: Theme,
}

impl EventLoop {
    async fn run(mut self) -> std::io::Result<()> {
        let mut events = events()?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut resized = signal(SignalKind::window_change())?;
        let mut resume = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
        // Redraws the clock, and how long a node has been lost.
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut frame_due = Instant::now();
        let mut dirty = true;
        loop {
            tokio::select! {
                biased;
                _ = terminate.recv() => return Ok(()),
                _ = hang_up.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
                // Terminals cut their content when they shrink, even if they grow back at once.
                _ = resized.recv() => self.terminal.invalidate(),
                _ = resume.recv() => self.terminal.reenter()?,
                event = events.recv() => match event {
                    None => return Ok(()),
                    Some(event) => match self.handle_event(&event) {
                        Effect::None => {}
                        Effect::Quit => return Ok(()),
                        Effect::Suspend => self.terminal.suspend()?,
                        Effect::Redraw => self.terminal.invalidate(),
                    },
                },
                () = tokio::time::sleep_until(frame_due), if dirty => {
                    self.terminal.draw(&mut self.app, self.theme, &clock(self.updates.start))?;
                    frame_due = Instant::now() + FRAME_INTERVAL;
                    dirty = false;
                    // Another terminal size can show other panes.
                    self.select();
                    continue;
                }
                _ = seconds.tick() => {}
                Some((node, update)) = self.updates.polled.recv() => self.apply_update(node, update),
                Some(update) = self.updates.logs.recv() => self.app.apply_log(update),
            }
            self.select();
            dirty = true;
        }
    }

    fn handle_event(&mut self, event: &Event) -> Effect {
        let Event::Key(key) = event else {
            return Effect::None;
        };
        match action(*key, self.app.screen.mode) {
            Some(action) => self.app.apply(action),
            // Keys without an action close the help too.
            None if self.app.screen.help => self.app.apply(Action::Help),
            None => Effect::None,
        }
    }

    fn apply_update(&mut self, node: usize, update: Update) {
        match update {
            Update::Round(round) => self.app.apply_round(node, *round),
            Update::Lost { at, error } => self.app.mark_lost(node, at, chain(&*error)),
        }
    }

    /// Polls and follows what is visible, and nothing else.
    fn select(&mut self) {
        let open = self.app.open_node();
        self.updates
            .set_detail(open.map_or(Detail::None, Detail::Node));
        let log = match self.app.screen.shows_logs() {
            true => open.zip(self.app.log_id()),
            false => None,
        };
        if self.updates.logs.follow(log) {
            self.app.log.clear();
        }
    }
}

fn clock(start: std::time::Instant) -> Clock {
    let now = Zoned::now();
    Clock {
        at: start.elapsed(),
        unix_seconds: u64::try_from(now.timestamp().as_second()).unwrap_or(0),
        time_of_day: now.strftime("%H:%M:%S").to_string(),
    }
}
