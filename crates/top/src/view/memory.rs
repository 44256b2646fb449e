//! Memory and swap, with the history of used memory.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::View;
use super::widgets::{bar, graph, percent, row, titled};
use crate::model::Node;
use crate::rates::percent_of;
use mainstay_client::format::size;

impl View<'_> {
    pub fn memory(self, frame: &mut Frame<'_>, area: Rect, node: &Node) {
        if area.is_empty() {
            return;
        }
        let mut details = Vec::new();
        if let Some(memory) = node.memory.known() {
            let used = percent(memory.percent());
            details.push(self.strong(used.trim_start().to_owned()));
            details.push(self.faint(format!("of {}", size(memory.total()))));
        }
        let title = self.title("memory", None);
        let area = titled(frame, area, self.theme, title, details);
        let Some(memory) = node.memory.known() else {
            return self.placeholder(frame, area, &node.memory);
        };
        let used = self.gauge(area, "used", memory.used(), memory.total());
        row(frame, area, 0, &used);
        let swap = self.gauge(area, "swap", memory.swap_used(), memory.swap_total());
        row(frame, area, 1, &swap);
        let rest = [
            ("available", memory.available()),
            ("cache", memory.cache()),
            ("buffers", memory.buffers()),
        ];
        let mut line = Line::default();
        for (name, bytes) in rest {
            let (name, bytes) = (format!("{name} "), format!("{}  ", size(bytes)));
            // A truncated number would be misleading.
            if line.width() + name.len() + bytes.len() > usize::from(area.width) + 2 {
                break;
            }
            line.push_span(self.faint(name));
            line.push_span(Span::raw(bytes));
        }
        row(frame, area, 2, &line);
        let rest = Rect {
            y: area.y.saturating_add(3),
            height: area.height.saturating_sub(3),
            ..area
        };
        let style = self.theme.graph();
        graph(frame, rest, self.theme, style, &memory.history, Some(100.0));
    }

    fn gauge(self, area: Rect, name: &str, used: u64, total: u64) -> Line<'static> {
        let mut line = Line::from(vec![self.faint(format!("{name} "))]);
        if total == 0 {
            line.push_span(self.faint("none"));
            return line;
        }
        let share = percent_of(used as f64, total as f64);
        line.extend(bar(self.theme, area.width.saturating_sub(21), share));
        line.push_span(Span::raw(format!(" {} {:>8}", percent(share), size(used))));
        line
    }
}
