//! The followed log, its latest line at the bottom.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::View;
use super::widgets::{row, titled};
use crate::screen::Pane;
use mainstay_client::format::printable;

impl View<'_> {
    pub fn logs(self, frame: &mut Frame<'_>, area: Rect) {
        if area.is_empty() {
            return;
        }
        let ids = self.app.node().map(|node| &node.logs);
        let selected = self.app.log_id();
        let below = self.app.screen.lines_below;
        let mut details = Vec::new();
        if let Some(id) = selected {
            details.push(self.strong(printable(id)));
        }
        if ids
            .and_then(|ids| ids.known())
            .is_some_and(|ids| ids.len() > 1)
        {
            details.push(self.faint("[ ] another"));
        }
        if below > 0 {
            details.push(self.faint(format!("{below} lines below")));
        }
        let title = self.title("logs", Some(Pane::Logs));
        let area = titled(frame, area, self.theme, title, details);
        if selected.is_none() {
            if let Some(ids) = ids {
                self.placeholder(frame, area, ids);
            }
            return;
        }
        let log = &self.app.log;
        let mut rows = usize::from(area.height);
        if let Some(error) = &log.error {
            rows = rows.saturating_sub(1);
            let line = Line::from(Span::styled(printable(error), self.theme.bad()));
            row(frame, area, area.height.saturating_sub(1), &line);
        } else if log.is_empty() {
            return self.message(frame, area, "no lines yet");
        }
        let end = log.len().saturating_sub(below);
        let begin = end.saturating_sub(rows);
        for (index, line) in (0..area.height).zip(log.range(begin..end)) {
            row(frame, area, index, &Line::from(line));
        }
    }
}
