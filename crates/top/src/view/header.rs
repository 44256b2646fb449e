//! The first and the last row.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::View;
use super::widgets::{row, row_at_right};
use crate::keys::Mode;
use crate::model::{Node, NodeState};
use crate::screen::Page;
use mainstay_client::format::duration;
use mainstay_client::format::printable;

impl View<'_> {
    pub fn node_header(self, frame: &mut Frame<'_>, area: Rect, node: &Node) {
        let mut line = Line::from(vec![
            Span::styled(printable(&node.name), self.theme.title()),
            Span::raw("  "),
        ]);
        let count = self.app.nodes.len();
        if count > 1 {
            let at = self.app.screen.node + 1;
            line.push_span(self.faint(format!("node {at} of {count}  ")));
        }
        match &node.state {
            NodeState::Pending => line.push_span(self.faint("waiting for the first answer")),
            NodeState::Up => line.extend(self.about(node)),
            NodeState::Lost { .. } => {
                line.push_span(Span::styled(self.loss(node), self.theme.bad()));
            }
        }
        self.header(frame, area, &line);
    }

    pub fn overview_header(self, frame: &mut Frame<'_>, area: Rect) {
        let lost = self.app.nodes.iter().filter(|node| node.is_lost()).count();
        let mut line = Line::from(vec![
            Span::styled("mainstay top", self.theme.title()),
            Span::raw(format!("  {} nodes", self.app.nodes.len())),
        ]);
        if lost > 0 {
            let lost = format!("  {lost} lost");
            line.push_span(Span::styled(lost, self.theme.bad()));
        }
        self.header(frame, area, &line);
    }

    fn header(self, frame: &mut Frame<'_>, area: Rect, line: &Line<'_>) {
        let clock = Line::from(self.clock.time_of_day.as_str());
        let clock_width = u16::try_from(clock.width()).unwrap_or(u16::MAX);
        let beside = Rect {
            width: area.width.saturating_sub(clock_width.saturating_add(1)),
            ..area
        };
        let text = line.to_string();
        let fits = Line::from(text.trim_end()).width() <= usize::from(beside.width);
        // The facts about the node come first.
        if beside.width < 30 || !fits {
            return row(frame, area, 0, line);
        }
        row(frame, beside, 0, line);
        row_at_right(frame, area, 0, &clock);
    }

    /// Returns `lost for 12 s: REASON`; empty for a node that is up.
    pub fn loss(self, node: &Node) -> String {
        match &node.state {
            NodeState::Lost { since, reason } => {
                let lost_for = duration(self.clock.at.saturating_sub(*since));
                // The name of the node is beside it.
                let known = format!("cannot reach node {}: ", node.name);
                let reason = reason.strip_prefix(&known).unwrap_or(reason);
                format!("lost for {lost_for}: {}", printable(reason))
            }
            NodeState::Pending | NodeState::Up => String::new(),
        }
    }

    /// Returns the uptime of the machine by our clock.
    pub fn uptime(self, node: &Node) -> Option<Duration> {
        let boot_time = node.cpu.known()?.boot_time();
        let seconds = self.clock.unix_seconds.checked_sub(boot_time)?;
        (boot_time > 0).then(|| Duration::from_secs(seconds))
    }

    fn about(self, node: &Node) -> Vec<Span<'static>> {
        let mut facts = Vec::new();
        let hostname = node.hostname.known();
        if let Some(hostname) = hostname.filter(|hostname| **hostname != node.name) {
            facts.push(self.strong(printable(hostname)));
        }
        if let Some(version) = node.version.known().and_then(|v| v.version.as_ref()) {
            facts.push(Span::raw(printable(&version.tag)));
        }
        if let Some(up) = self.uptime(node) {
            facts.push(Span::raw(format!("up {}", duration(up))));
        }
        if let Some([one, five, fifteen]) = node.load.known() {
            facts.push(Span::raw(format!("load {one:.2} {five:.2} {fifteen:.2}")));
        }
        let mut spaced = Vec::new();
        for fact in facts {
            spaced.push(fact);
            spaced.push(Span::raw("  "));
        }
        spaced
    }

    pub fn footer(self, frame: &mut Frame<'_>, area: Rect) {
        let screen = &self.app.screen;
        if screen.mode == Mode::Filter {
            let line = Line::from(vec![
                Span::styled("/", self.theme.title()),
                Span::raw(printable(&screen.filter)),
                Span::styled(" ", self.theme.cursor()),
                self.faint("  enter keeps it, esc drops it"),
            ]);
            return row(frame, area, 0, &line);
        }
        let keys: &[(&str, &str)] = match screen.page {
            Page::Overview => &[
                ("q", "quit"),
                ("?", "help"),
                ("enter", "open"),
                ("c m n", "sort"),
                ("p", "as given"),
            ],
            Page::Node if self.app.nodes.len() > 1 => &[
                ("q", "quit"),
                ("?", "help"),
                ("esc", "all nodes"),
                ("← →", "node"),
                ("/", "filter"),
                ("c m p n", "sort"),
                ("tab", "pane"),
                ("l", "logs"),
            ],
            Page::Node => &[
                ("q", "quit"),
                ("?", "help"),
                ("/", "filter"),
                ("c m p n", "sort"),
                ("tab", "pane"),
                ("l", "logs"),
            ],
        };
        let mut line = Line::default();
        for (key, meaning) in keys {
            line.push_span(self.strong(*key));
            line.push_span(self.faint(format!(" {meaning}   ")));
        }
        row(frame, area, 0, &line);
    }
}
