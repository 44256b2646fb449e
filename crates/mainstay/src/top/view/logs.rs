//! The log that is followed, its newest line at the bottom.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::View;
use super::text::{row, titled};
use crate::output::printable;
use crate::top::screen::Pane;

impl View<'_> {
    pub fn logs(self, frame: &mut Frame<'_>, area: Rect) {
        if area.is_empty() {
            return;
        }
        let ids = self.app.node().map(|node| &node.logs);
        let chosen = self.app.log_id();
        let below = self.app.screen.lines_below;
        let mut details = Vec::new();
        if let Some(id) = chosen {
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
        if chosen.is_none() {
            if let Some(ids) = ids {
                self.nothing(frame, area, ids);
            }
            return;
        }
        let log = &self.app.log;
        let mut rows = usize::from(area.height);
        if let Some(trouble) = &log.trouble {
            rows = rows.saturating_sub(1);
            let line = Line::from(Span::styled(printable(trouble), self.theme.bad()));
            row(frame, area, area.height.saturating_sub(1), &line);
        } else if log.is_empty() {
            return self.say(frame, area, "no lines yet");
        }
        let end = log.len().saturating_sub(below);
        let begin = end.saturating_sub(rows);
        for (index, line) in (0..area.height).zip(log.range(begin..end)) {
            row(frame, area, index, &Line::from(line));
        }
    }
}
