//! The overview: one row per node.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use super::View;
use super::widgets::{bar, fit, percent, rate, row};
use crate::model::{Node, NodeState};
use crate::screen::Sort;
use mainstay_client::format::duration;
use mainstay_client::format::printable;

/// From here on there is room for bars, and for a loss beside the last readings.
const WIDE: u16 = 120;
const BAR: u16 = 12;

impl View<'_> {
    pub fn nodes(self, frame: &mut Frame<'_>, area: Rect) {
        let longest = self.app.nodes.iter().map(|node| node.name.chars().count());
        let name_width = longest
            .max()
            .unwrap_or(0)
            .clamp(6, if self.wide(area) { 40 } else { 16 });
        row(frame, area, 0, &self.heading(area, name_width));
        let rows = area.height.saturating_sub(1);
        let seen = self.app.order.iter().skip(self.app.screen.first_node);
        for (index, at) in (1..=rows).zip(seen) {
            let Some(node) = self.app.nodes.get(*at) else {
                continue;
            };
            let mut line = self.node_line(node, area, name_width);
            if *at == self.app.screen.node {
                let width = usize::from(area.width);
                let rest = width.saturating_sub(line.width());
                line.push_span(Span::raw(" ".repeat(rest)));
                line = line.patch_style(self.theme.cursor());
            }
            row(frame, area, index, &line);
        }
    }

    fn wide(self, area: Rect) -> bool {
        area.width >= WIDE
    }

    fn heading(self, area: Rect, name_width: usize) -> Line<'static> {
        let room_for_bar = if self.wide(area) {
            usize::from(BAR) + 1
        } else {
            0
        };
        let columns = [
            (format!("{} ", fit("NODE", name_width)), Some(Sort::Name)),
            (format!("{:>1$} ", "CPU", 5 + room_for_bar), Some(Sort::Cpu)),
            (
                format!("{:>1$} ", "MEM", 5 + room_for_bar),
                Some(Sort::Memory),
            ),
            (format!("{:>6} ", "LOAD"), None),
            (format!("{:>10} {:>10} ", "NET IN", "NET OUT"), None),
            (format!("{:>10} ", "DISK"), None),
            (format!("{:>6} ", "PROCS"), None),
            ("STATE".to_owned(), None),
        ];
        let sort = self.app.screen.node_sort;
        Line::from_iter(columns.into_iter().map(|(name, by)| {
            if by == Some(sort) {
                Span::styled(name, self.theme.title())
            } else {
                self.faint(name)
            }
        }))
    }

    fn node_line(self, node: &Node, area: Rect, name_width: usize) -> Line<'static> {
        let name = format!("{} ", fit(&printable(&node.name), name_width));
        let mut line = Line::from(vec![self.strong(name)]);
        let lost = node.is_lost();
        if lost && !self.wide(area) {
            line.push_span(Span::styled(self.loss(node), self.theme.bad()));
            return line;
        }
        let mut figures = self.figures(node, area);
        if lost {
            for figure in &mut figures {
                figure.style = figure.style.add_modifier(Modifier::DIM);
            }
        }
        line.extend(figures);
        line.push_span(match &node.state {
            NodeState::Pending => self.faint("waiting"),
            NodeState::Lost { .. } => Span::styled(self.loss(node), self.theme.bad()),
            NodeState::Up => {
                let up = self.uptime(node).filter(|_| self.wide(area));
                let text = up.map_or_else(|| "up".to_owned(), |up| format!("up {}", duration(up)));
                Span::styled(text, self.theme.good())
            }
        });
        line
    }

    fn figures(self, node: &Node, area: Rect) -> Vec<Span<'static>> {
        let mut figures = Vec::new();
        let cpu = node.cpu.known().and_then(|cpu| cpu.total);
        let shares = [
            cpu.map(|total| total.busy),
            node.memory.known().and_then(|memory| memory.percent()),
        ];
        for share in shares {
            if self.wide(area) {
                figures.extend(bar(self.theme, BAR, share));
                figures.push(Span::raw(" "));
            }
            figures.push(Span::raw(format!("{} ", percent(share))));
        }
        let load = node.load.known();
        let load = load.map_or_else(|| "-".to_owned(), |[one, ..]| format!("{one:.2}"));
        let network = node.network.known().and_then(|network| network.total);
        let disks = node.disks.known().and_then(|disks| disks.total);
        let processes = node.processes.known();
        let count = processes.map_or_else(|| "-".to_owned(), |all| all.list.len().to_string());
        figures.push(Span::raw(format!(
            "{load:>6} {:>10} {:>10} {:>10} {count:>6} ",
            rate(network.map(|traffic| traffic.inward)),
            rate(network.map(|traffic| traffic.outward)),
            rate(disks.map(|traffic| traffic.inward + traffic.outward)),
        )));
        figures
    }
}
