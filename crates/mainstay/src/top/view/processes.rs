//! The table of processes. Only the rows that are seen are made.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::View;
use super::text::{cpu_time, percent, row, titled};
use crate::output::{printable, size};
use crate::top::keys::Mode;
use crate::top::model::{Node, Process};
use crate::top::rates::percent_of;
use crate::top::screen::{Pane, Sort};

/// A column: its name, its width, the narrowest pane that has room for it, and what sorts by it.
struct Column {
    name: &'static str,
    width: usize,
    from: u16,
    sort: Option<Sort>,
    text: fn(&Process, u64) -> String,
}

const COLUMNS: [Column; 7] = [
    Column {
        name: "PID",
        width: 7,
        from: 0,
        sort: Some(Sort::Pid),
        text: |process, _| process.info.pid.to_string(),
    },
    Column {
        name: "S",
        width: 1,
        from: 40,
        sort: None,
        text: |process, _| printable(&process.info.state.chars().take(1).collect::<String>()),
    },
    Column {
        name: "THR",
        width: 4,
        from: 70,
        sort: None,
        text: |process, _| process.info.threads.to_string(),
    },
    Column {
        name: "CPU",
        width: 5,
        from: 20,
        sort: Some(Sort::Cpu),
        text: |process, _| percent(process.cpu),
    },
    Column {
        name: "MEM",
        width: 5,
        from: 30,
        sort: Some(Sort::Memory),
        text: |process, total| {
            percent(percent_of(
                process.info.resident_memory as f64,
                total as f64,
            ))
        },
    },
    Column {
        name: "RESIDENT",
        width: 8,
        from: 55,
        sort: Some(Sort::Memory),
        text: |process, _| size(process.info.resident_memory),
    },
    Column {
        name: "TIME",
        width: 9,
        from: 62,
        sort: None,
        text: |process, _| cpu_time(process.info.cpu_time),
    },
];

impl View<'_> {
    pub fn processes(self, frame: &mut Frame<'_>, area: Rect, node: &Node) {
        if area.is_empty() {
            return;
        }
        let screen = &self.app.screen;
        let shown = &self.app.processes;
        let mut details = Vec::new();
        if let Some(processes) = node.processes.known() {
            let running = processes.running;
            details.push(self.strong(processes.list.len().to_string()));
            details.push(self.faint(format!("{running} running")));
        }
        if screen.mode == Mode::Filter || !screen.filter.is_empty() {
            details.push(self.strong(format!("/{}", printable(&screen.filter))));
            details.push(self.faint(format!("{} found", shown.len())));
        }
        let title = self.title("processes", Some(Pane::Processes));
        let area = titled(frame, area, self.theme, title, details);
        let Some(processes) = node.processes.known() else {
            return self.nothing(frame, area, &node.processes);
        };
        row(frame, area, 0, &self.column_names(area.width));
        let total = node.memory.known().map_or(0, |memory| memory.total());
        let seen = shown.iter().skip(screen.first_process);
        let rows = area.height.saturating_sub(1);
        for (index, place) in (1..=rows).zip(seen) {
            if let Some(process) = processes.list.get(*place) {
                row(
                    frame,
                    area,
                    index,
                    &self.process(process, total, area.width),
                );
            }
        }
    }

    fn column_names(self, width: u16) -> Line<'static> {
        let mut line = Line::default();
        let sort = self.app.screen.sort;
        let style = |by: Option<Sort>| {
            if by == Some(sort) {
                self.theme.title()
            } else {
                self.theme.faint()
            }
        };
        for column in COLUMNS.iter().filter(|column| column.from <= width) {
            let name = format!("{:>1$} ", column.name, column.width);
            line.push_span(Span::styled(name, style(column.sort)));
        }
        line.push_span(Span::styled("COMMAND", style(Some(Sort::Name))));
        line
    }

    fn process(self, process: &Process, total: u64, width: u16) -> Line<'static> {
        let mut text = String::new();
        for column in COLUMNS.iter().filter(|column| column.from <= width) {
            text.push_str(&format!(
                "{:>1$} ",
                (column.text)(process, total),
                column.width
            ));
        }
        // The rest of a long line is never seen.
        let shown: String = process.shown_as().chars().take(width.into()).collect();
        let command = printable(&shown);
        let command = if process.info.args.is_empty() {
            self.faint(command)
        } else if process.info.state == "R" {
            self.strong(command)
        } else {
            Span::raw(command)
        };
        Line::from(vec![Span::raw(text), command])
    }
}
