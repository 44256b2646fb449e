//! The table of processes; only visible rows are formatted.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::View;
use super::widgets::{percent, rate, row, titled};
use crate::keys::Mode;
use crate::model::{Node, Process};
use crate::rates::percent_of;
use crate::screen::{Pane, Sort};
use mainstay_client::format::{cpu_time, printable, size};

/// Longer names are cut.
const USER_WIDTH: usize = 8;

/// A column: name, width, minimum pane width, and the sort order it shows.
struct Column {
    name: &'static str,
    width: usize,
    min_pane_width: u16,
    sort: Option<Sort>,
    text: fn(&Process, u64) -> String,
}

const COLUMNS: [Column; 10] = [
    Column {
        name: "PID",
        width: 7,
        min_pane_width: 0,
        sort: Some(Sort::Pid),
        text: |process, _| process.info.pid.to_string(),
    },
    Column {
        name: "USER",
        width: USER_WIDTH,
        min_pane_width: 80,
        sort: None,
        text: |process, _| {
            let user: String = process.user().chars().take(USER_WIDTH).collect();
            printable(&user)
        },
    },
    Column {
        name: "S",
        width: 1,
        min_pane_width: 40,
        sort: None,
        text: |process, _| printable(&process.info.state.chars().take(1).collect::<String>()),
    },
    Column {
        name: "THR",
        width: 4,
        min_pane_width: 70,
        sort: None,
        text: |process, _| process.info.threads.to_string(),
    },
    Column {
        name: "CPU",
        width: 5,
        min_pane_width: 20,
        sort: Some(Sort::Cpu),
        text: |process, _| percent(process.cpu),
    },
    Column {
        name: "MEM",
        width: 5,
        min_pane_width: 30,
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
        min_pane_width: 55,
        sort: Some(Sort::Memory),
        text: |process, _| size(process.info.resident_memory),
    },
    Column {
        name: "TIME",
        width: 9,
        min_pane_width: 62,
        sort: None,
        text: |process, _| cpu_time(process.info.cpu_time),
    },
    Column {
        name: "READ",
        width: 10,
        min_pane_width: 96,
        sort: None,
        text: |process, _| rate(process.read),
    },
    Column {
        name: "WRITE",
        width: 10,
        min_pane_width: 96,
        sort: None,
        text: |process, _| rate(process.write),
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
            return self.placeholder(frame, area, &node.processes);
        };
        row(frame, area, 0, &self.column_names(area.width));
        let total = node.memory.known().map_or(0, |memory| memory.total());
        let seen = shown.iter().skip(screen.first_process);
        let rows = area.height.saturating_sub(1);
        for (index, position) in (1..=rows).zip(seen) {
            if let Some(process) = processes.list.get(*position) {
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
        for column in COLUMNS
            .iter()
            .filter(|column| column.min_pane_width <= width)
        {
            let name = format!("{:>1$} ", column.name, column.width);
            line.push_span(Span::styled(name, style(column.sort)));
        }
        line.push_span(Span::styled("COMMAND", style(Some(Sort::Name))));
        line
    }

    fn process(self, process: &Process, total: u64, width: u16) -> Line<'static> {
        let mut text = String::new();
        for column in COLUMNS
            .iter()
            .filter(|column| column.min_pane_width <= width)
        {
            text.push_str(&format!(
                "{:>1$} ",
                (column.text)(process, total),
                column.width
            ));
        }
        // A long line is cut before it is escaped.
        let shown: String = process.command_line().chars().take(width.into()).collect();
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
