//! The loop of the live view: whatever comes first, then a drawing of what became of it.

use std::time::Duration;

use jiff::Zoned;
use ratatui::crossterm::event::Event;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior};

use super::app::{App, Wish};
use super::feed::Feed;
use super::keys::{Action, action};
use super::poll::{Gaze, News};
use super::terminal::{Terminal, events};
use super::view::{Moment, Theme};
use crate::cli::Global;
use crate::client::Client;
use crate::failure::{Exit, Failure, Outcome};

/// Drawings are at least this far apart, however much comes.
const FRAME: Duration = Duration::from_millis(40);

/// Shows the nodes until the user has seen enough.
pub async fn live(global: &Global, interval: Duration) -> Outcome {
    let client = Client::connect(global).await?;
    let gaze = match client.nodes().len() {
        0 | 1 => Gaze::One(0),
        _ => Gaze::Nobody,
    };
    let mut feed = Feed::start(client, global, interval, gaze);
    let mut app = App::new(feed.names.clone(), 0, 0);
    feed.first_answer(&mut app).await?;
    let terminal = Terminal::take().map_err(|error| no_terminal(&error))?;
    let live = Live {
        app,
        feed,
        terminal,
        theme: Theme::from_environment(),
    };
    live.run().await.map_err(Failure::from)
}

fn no_terminal(error: &std::io::Error) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("the terminal cannot be used: {error}; mainstay top --once needs none"),
    )
}

struct Live {
    app: App,
    feed: Feed,
    terminal: Terminal,
    theme: Theme,
}

impl Live {
    async fn run(mut self) -> std::io::Result<()> {
        let mut events = events()?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut resized = signal(SignalKind::window_change())?;
        let mut resume = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
        // The clock, and how long a node has been lost.
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut frame_due = Instant::now();
        let mut to_draw = true;
        loop {
            tokio::select! {
                biased;
                _ = terminate.recv() => return Ok(()),
                _ = hang_up.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
                // Terminals cut what they show, also when they grow back at once.
                _ = resized.recv() => self.terminal.forget(),
                _ = resume.recv() => self.terminal.retake()?,
                event = events.recv() => match event {
                    None => return Ok(()),
                    Some(event) => match self.take_event(&event) {
                        Wish::Nothing => {}
                        Wish::Quit => return Ok(()),
                        Wish::Suspend => self.terminal.suspend()?,
                        Wish::Redraw => self.terminal.forget(),
                    },
                },
                () = tokio::time::sleep_until(frame_due), if to_draw => {
                    self.terminal.draw(&mut self.app, self.theme, &now(self.feed.start))?;
                    frame_due = Instant::now() + FRAME;
                    to_draw = false;
                    // With another size, something else may be seen.
                    self.look();
                    continue;
                }
                _ = seconds.tick() => {}
                Some((node, news)) = self.feed.news.recv() => self.take_news(node, news),
                Some(news) = self.feed.logs.recv() => self.app.take_in_log(news),
            }
            self.look();
            to_draw = true;
        }
    }

    fn take_event(&mut self, event: &Event) -> Wish {
        let Event::Key(key) = event else {
            return Wish::Nothing;
        };
        match action(*key, self.app.screen.mode) {
            Some(action) => self.app.apply(action),
            // Keys without a meaning close the help too.
            None if self.app.screen.help => self.app.apply(Action::Help),
            None => Wish::Nothing,
        }
    }

    fn take_news(&mut self, node: usize, news: News) {
        match news {
            News::Round(round) => self.app.take_in(node, *round),
            News::Lost { at, failure } => self.app.lose(node, at, failure.message),
        }
    }

    /// Asks for what is looked at, and for nothing else.
    fn look(&mut self) {
        let open = self.app.open_node();
        self.feed.look_at(open.map_or(Gaze::Nobody, Gaze::One));
        let log = match self.app.screen.shows_logs() {
            true => open.zip(self.app.log_id()),
            false => None,
        };
        if self.feed.logs.follow(log) {
            self.app.log.clear();
        }
    }
}

fn now(start: std::time::Instant) -> Moment {
    let now = Zoned::now();
    Moment {
        at: start.elapsed(),
        unix_seconds: u64::try_from(now.timestamp().as_second()).unwrap_or(0),
        clock: now.strftime("%H:%M:%S").to_string(),
    }
}
