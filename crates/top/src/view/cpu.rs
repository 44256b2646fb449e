//! CPU usage by state and by core, with its history.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::View;
use super::widgets::{bar, graph, percent, row, titled, whole};
use crate::model::{Cpu, Node};
use mainstay_client::format::printable;

/// Minimum width of a core: index, a short bar, percentage.
const CORE_WIDTH: u16 = 18;

impl View<'_> {
    pub fn cpu(self, frame: &mut Frame<'_>, area: Rect, node: &Node) {
        if area.is_empty() {
            return;
        }
        let mut details = Vec::new();
        if let Some(cpu) = node.cpu.known() {
            let busy = cpu.total.map(|total| total.busy);
            details.push(self.strong(percent(busy).trim_start().to_owned()));
            let count = cpu.cores.len();
            let cores = if count == 1 { "core" } else { "cores" };
            details.push(self.faint(format!("{count} {cores}")));
        }
        if let Some(model) = node.cpu_model.known() {
            details.push(self.faint(printable(model)));
        }
        let area = titled(frame, area, self.theme, self.title("cpu", None), details);
        let Some(cpu) = node.cpu.known() else {
            return self.placeholder(frame, area, &node.cpu);
        };
        row(frame, area, 0, &self.split(cpu));
        let below = Rect {
            y: area.y.saturating_add(1),
            height: area.height.saturating_sub(1),
            ..area
        };
        let used = self.cores(frame, below, cpu);
        let rest = Rect {
            y: below.y.saturating_add(used),
            height: below.height.saturating_sub(used),
            ..below
        };
        let style = self.theme.graph();
        graph(frame, rest, self.theme, style, &cpu.history, Some(100.0));
    }

    fn split(self, cpu: &Cpu) -> Line<'static> {
        let mut line = Line::default();
        let total = cpu.total;
        for (name, share) in [
            ("user", total.map(|total| total.user)),
            ("system", total.map(|total| total.system)),
            ("wait", total.map(|total| total.iowait)),
            ("stolen", total.map(|total| total.steal)),
        ] {
            // Steal time is zero on physical machines.
            if name == "stolen" && share.is_none_or(|share| share < 0.05) {
                continue;
            }
            line.push_span(self.faint(format!("{name} ")));
            line.push_span(Span::raw(percent(share).trim_start().to_owned()));
            line.push_span(Span::raw("  "));
        }
        line
    }

    /// Draws a bar per core if all fit, else a symbol per core. Returns the rows used.
    fn cores(self, frame: &mut Frame<'_>, area: Rect, cpu: &Cpu) -> u16 {
        let count = cpu.cores.len();
        let columns = (area.width / CORE_WIDTH).max(1);
        let rows = u16::try_from(count.div_ceil(columns.into())).unwrap_or(u16::MAX);
        if count == 0 || rows > area.height {
            return self.core_symbols(frame, area, cpu);
        }
        let width = area.width / columns;
        for (index, core) in cpu.cores.iter().enumerate() {
            let busy = core.map(|core| core.busy);
            let mut line = Line::from(vec![self.faint(format!("{index:>2} "))]);
            line.extend(bar(self.theme, width.saturating_sub(11), busy));
            line.push_span(Span::raw(format!(" {}", percent(busy))));
            // Column by column, top to bottom.
            let at = u16::try_from(index).unwrap_or(u16::MAX);
            let cell = Rect {
                x: area.x + at / rows * width,
                width,
                ..area
            };
            row(frame, cell, at % rows, &line);
        }
        rows
    }

    fn core_symbols(self, frame: &mut Frame<'_>, area: Rect, cpu: &Cpu) -> u16 {
        let set = self.theme.symbols.graph;
        let levels = [
            set.one_eighth,
            set.one_eighth,
            set.one_quarter,
            set.three_eighths,
            set.half,
            set.five_eighths,
            set.three_quarters,
            set.seven_eighths,
            set.full,
        ];
        let width = usize::from(area.width.max(1));
        let mut rows = 0;
        for cores in cpu.cores.chunks(width).take(area.height.into()) {
            let symbols = cores.iter().map(|core| {
                let busy = core.map_or(0.0, |core| core.busy);
                let level = usize::try_from(whole(busy / 100.0 * 8.0)).unwrap_or(0);
                Span::styled(levels[level.min(8)], self.theme.level(busy))
            });
            row(frame, area, rows, &Line::from_iter(symbols));
            rows += 1;
        }
        rows
    }
}
