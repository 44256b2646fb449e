//! Draws the data of the nodes and the selection, and only the visible part of it.

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
mod theme;
mod widgets;
mod workloads;

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
use layout::{OverviewPanes, Panes};
use mainstay_client::format::printable;
pub use theme::Theme;
pub use widgets::{percent, rate};

/// The current time.
#[derive(Debug, Clone)]
pub struct Clock {
    /// Time since the start of polling.
    pub at: Duration,
    pub unix_seconds: u64,
    /// Local time of day.
    pub time_of_day: String,
}

/// Input of every pane.
#[derive(Debug, Clone, Copy)]
struct View<'a> {
    app: &'a App,
    theme: Theme,
    clock: &'a Clock,
}

pub fn draw(frame: &mut Frame<'_>, app: &App, theme: Theme, clock: &Clock) {
    let view = View { app, theme, clock };
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
        self.workloads(frame, panes.workloads, node);
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

    /// Draws why a pane has no data.
    fn placeholder<T>(self, frame: &mut Frame<'_>, area: Rect, reading: &Reading<T>) {
        match reading {
            Reading::Pending => self.message(frame, area, "no reading yet"),
            Reading::Unavailable(reason) => self.message(frame, area, reason),
            Reading::Known(_) => {}
        }
    }

    fn message(self, frame: &mut Frame<'_>, area: Rect, text: &str) {
        let text = Paragraph::new(printable(text))
            .style(self.theme.faint())
            .wrap(Wrap { trim: true });
        frame.render_widget(text, area);
    }
}
