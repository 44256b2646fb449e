//! Containers and executables of cells.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::View;
use super::widgets::{fit, percent, row, titled};
use crate::model::{Node, Workload};
use crate::screen::Pane;
use mainstay_client::format::{printable, size};

/// Width of the state, the CPU usage and the memory of a row, and the spaces before them.
const FIGURES_WIDTH: u16 = 25;

impl View<'_> {
    pub fn workloads(self, frame: &mut Frame<'_>, area: Rect, node: &Node) {
        if area.is_empty() {
            return;
        }
        let mut details = Vec::new();
        if let Some(workloads) = node.workloads.known() {
            details.push(self.strong(workloads.list.len().to_string()));
            details.push(self.faint(format!("{} running", workloads.running())));
        }
        let title = self.title("containers and cells", Some(Pane::Workloads));
        let area = titled(frame, area, self.theme, title, details);
        let Some(workloads) = node.workloads.known() else {
            return self.placeholder(frame, area, &node.workloads);
        };
        if workloads.list.is_empty() {
            return self.message(frame, area, "no containers and no cells");
        }
        let name_width = usize::from(area.width.saturating_sub(FIGURES_WIDTH).max(8));
        let seen = workloads.list.iter().skip(self.app.screen.first_workload);
        for (index, workload) in (0..area.height).zip(seen) {
            row(frame, area, index, &self.workload(workload, name_width));
        }
    }

    fn workload(self, workload: &Workload, name_width: usize) -> Line<'static> {
        let info = &workload.info;
        let name = printable(&format!("{}/{}", info.namespace, info.id));
        let state = printable(info.status.trim_start_matches("CONTAINER_")).to_lowercase();
        let state = fit(&state, 8);
        let style = match workload.is_running() {
            true => self.theme.good(),
            false => self.theme.faint(),
        };
        let memory = workload.memory_bytes.map(size).unwrap_or_default();
        let cpu = match workload.is_running() {
            true => percent(workload.cpu),
            false => String::new(),
        };
        Line::from(vec![
            Span::raw(format!("{} ", fit(&name, name_width))),
            Span::styled(state, style),
            Span::raw(format!(" {cpu:>5} {memory:>8}")),
        ])
    }
}
