//! What is known and chosen, as it stands on the screen. Draws only, and only what is seen.

mod cpu;
mod devices;
mod header;
mod help;
pub mod layout;
mod logs;
mod memory;
mod overview;
mod processes;
mod services;
mod text;
mod theme;

#[cfg(test)]
mod tests;

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;
use ratatui::widgets::{Paragraph, Wrap};

use super::app::App;
use super::model::{Node, Reading};
use super::screen::{Page, Pane};
use crate::output::printable;
use layout::{OverviewPanes, Panes};
pub use text::{cpu_time, percent, rate};
pub use theme::Theme;

/// When it is.
#[derive(Debug, Clone)]
pub struct Moment {
    /// Counted from where the readings count.
    pub at: Duration,
    pub unix_seconds: u64,
    /// As a clock on the wall shows it.
    pub clock: String,
}

/// Everything a part needs to be drawn.
#[derive(Debug, Clone, Copy)]
struct View<'a> {
    app: &'a App,
    theme: Theme,
    moment: &'a Moment,
}

pub fn draw(frame: &mut Frame<'_>, app: &App, theme: Theme, moment: &Moment) {
    let view = View { app, theme, moment };
    match (app.screen.page, app.node()) {
        (Page::Node, Some(node)) => view.node(frame, node),
        _ => view.overview(frame),
    }
    if app.screen.help {
        view.help(frame);
    }
}

impl View<'_> {
    fn node(self, frame: &mut Frame<'_>, node: &Node) {
        let panes = Panes::arrange(&self.app.screen);
        self.node_header(frame, panes.header, node);
        self.cpu(frame, panes.cpu, node);
        self.memory(frame, panes.memory, node);
        self.disks(frame, panes.disks, node);
        self.network(frame, panes.network, node);
        self.processes(frame, panes.processes, node);
        self.services(frame, panes.services, node);
        self.logs(frame, panes.logs);
        self.footer(frame, panes.footer);
        if node.is_lost() {
            let figures = Rect {
                y: panes.header.bottom(),
                height: panes.footer.y.saturating_sub(panes.header.bottom()),
                ..panes.header
            };
            let dimmed = Style::new().add_modifier(Modifier::DIM);
            frame.buffer_mut().set_style(figures, dimmed);
        }
    }

    fn overview(self, frame: &mut Frame<'_>) {
        let panes = OverviewPanes::arrange(&self.app.screen);
        self.overview_header(frame, panes.header);
        self.nodes(frame, panes.nodes);
        self.footer(frame, panes.footer);
    }

    fn title(self, name: &'static str, pane: Option<Pane>) -> Span<'static> {
        let focused = pane == Some(self.app.screen.focus);
        let style = if focused {
            self.theme.focused()
        } else {
            self.theme.title()
        };
        Span::styled(name, style)
    }

    fn faint(self, text: impl Into<String>) -> Span<'static> {
        Span::styled(text.into(), self.theme.faint())
    }

    fn strong(self, text: impl Into<String>) -> Span<'static> {
        Span::styled(text.into(), self.theme.strong())
    }

    /// Says why there is nothing to show.
    fn nothing<T>(self, frame: &mut Frame<'_>, area: Rect, reading: &Reading<T>) {
        match reading {
            Reading::Awaited => self.say(frame, area, "no reading yet"),
            Reading::Withheld(why) => self.say(frame, area, why),
            Reading::Known(_) => {}
        }
    }

    fn say(self, frame: &mut Frame<'_>, area: Rect, text: &str) {
        let text = Paragraph::new(printable(text))
            .style(self.theme.faint())
            .wrap(Wrap { trim: true });
        frame.render_widget(text, area);
    }
}
