//! The key bindings, in a popup.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::View;

const KEYS: [(&str, &str); 14] = [
    ("q, Ctrl-C", "quit"),
    ("Ctrl-Z", "suspend; fg brings it back"),
    ("Enter", "open the node under the cursor"),
    ("Esc", "drop the filter; back to all nodes"),
    ("Left, Right", "the node before or after"),
    ("Up, Down, j, k", "scroll"),
    ("PgUp, PgDn", "scroll a page"),
    ("Home, End, g, G", "first or last"),
    ("c, m, p, n", "sort by CPU, memory, pid, name"),
    ("/", "only processes with a text"),
    ("Tab", "processes, containers, logs"),
    ("l", "show or hide the logs"),
    ("[, ]", "another log"),
    ("?", "this help; any key closes it"),
];

impl View<'_> {
    pub fn help(self, frame: &mut Frame<'_>) {
        let lines: Vec<Line<'_>> = KEYS
            .iter()
            .map(|(key, meaning)| {
                Line::from(vec![
                    self.strong(format!(" {key:<16} ")),
                    Span::raw(*meaning),
                ])
            })
            .collect();
        let all = frame.area();
        let height = u16::try_from(KEYS.len() + 2)
            .unwrap_or(u16::MAX)
            .min(all.height);
        let width = 56.min(all.width);
        let area = Rect {
            x: all.x + (all.width - width) / 2,
            y: all.y + (all.height - height) / 2,
            width,
            height,
        };
        let mut block = Block::bordered()
            .title(Span::styled(" keys ", self.theme.title()))
            .border_style(self.theme.faint());
        if self.theme.symbols.rule == "-" {
            block = block.border_set(ratatui::symbols::border::Set {
                top_left: "+",
                top_right: "+",
                bottom_left: "+",
                bottom_right: "+",
                vertical_left: "|",
                vertical_right: "|",
                horizontal_top: "-",
                horizontal_bottom: "-",
            });
        }
        frame.render_widget(Clear, area);
        frame.render_widget(Paragraph::new(lines).block(block), area);
    }
}
