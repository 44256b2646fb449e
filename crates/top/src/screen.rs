//! The selection: page, node, focus, sort order, filter and scroll positions.

use super::keys::{Mode, Motion};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// All nodes, one row each.
    Overview,
    Node,
}

/// The panes of a node's page that take the focus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pane {
    Processes,
    Workloads,
    Services,
    Logs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    Cpu,
    Memory,
    Pid,
    Name,
}

/// Terminals with at least this many rows show the logs by default.
const MIN_LOG_HEIGHT: u16 = 40;

/// Bound on the filter text.
const MAX_FILTER_BYTES: usize = 200;

#[derive(Debug)]
pub struct Screen {
    pub width: u16,
    pub height: u16,
    pub page: Page,
    /// The node under the cursor, or the open one.
    pub node: usize,
    pub focus: Pane,
    /// Sort order of processes.
    pub sort: Sort,
    /// Sort order of nodes; `Pid` keeps the order of the command line.
    pub node_sort: Sort,
    pub filter: String,
    pub mode: Mode,
    pub help: bool,
    /// The open node lists services.
    pub has_services: bool,
    /// The open node has containers or cells.
    pub has_workloads: bool,
    /// `None` until the user toggles the pane.
    logs: Option<bool>,
    /// Id of the selected log.
    pub log: Option<String>,
    /// First visible row of each list.
    pub first_node: usize,
    pub first_process: usize,
    pub first_service: usize,
    pub first_workload: usize,
    /// Log lines below the last visible one.
    pub lines_below: usize,
}

impl Screen {
    pub fn new(width: u16, height: u16, nodes: usize) -> Self {
        Self {
            width,
            height,
            page: if nodes > 1 {
                Page::Overview
            } else {
                Page::Node
            },
            node: 0,
            focus: Pane::Processes,
            sort: Sort::Cpu,
            node_sort: Sort::Pid,
            filter: String::new(),
            mode: Mode::Commands,
            help: false,
            has_services: false,
            has_workloads: false,
            logs: None,
            log: None,
            first_node: 0,
            first_process: 0,
            first_service: 0,
            first_workload: 0,
            lines_below: 0,
        }
    }

    pub fn shows_logs(&self) -> bool {
        self.page == Page::Node && self.logs.unwrap_or(self.height >= MIN_LOG_HEIGHT)
    }

    pub fn toggle_logs(&mut self) {
        let shown = self.shows_logs();
        self.logs = Some(!shown);
        self.focus = match (shown, self.focus) {
            (true, Pane::Logs) => Pane::Processes,
            (_, focus) => focus,
        };
    }

    /// Returns the next or the previous pane in focus order.
    pub fn next_pane(&self, forward: bool) -> Pane {
        let mut panes = vec![Pane::Processes, Pane::Workloads];
        if self.has_services {
            panes.push(Pane::Services);
        }
        if self.shows_logs() {
            panes.push(Pane::Logs);
        }
        let at = panes.iter().position(|pane| *pane == self.focus);
        let at = at.unwrap_or(0) + if forward { 1 } else { panes.len() - 1 };
        panes[at % panes.len()]
    }

    pub fn type_into_filter(&mut self, c: char) {
        if self.filter.len() < MAX_FILTER_BYTES && !c.is_control() {
            self.filter.push(c);
        }
    }

    /// Scrolls every list to its start, for another node or filter.
    pub fn reset_scroll(&mut self) {
        self.first_process = 0;
        self.first_service = 0;
        self.first_workload = 0;
        self.lines_below = 0;
    }
}

/// Returns the first visible row after a motion; the last page stays full.
pub fn moved(from: usize, motion: Motion, page: usize, length: usize) -> usize {
    let last = length.saturating_sub(page);
    let to = match motion {
        Motion::Up => from.saturating_sub(1),
        Motion::Down => from.saturating_add(1),
        Motion::PageUp => from.saturating_sub(page.max(1)),
        Motion::PageDown => from.saturating_add(page.max(1)),
        Motion::Home => 0,
        Motion::End => last,
    };
    to.min(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_never_scrolled_past_its_last_page() {
        assert_eq!(moved(0, Motion::Up, 10, 100), 0);
        assert_eq!(moved(89, Motion::Down, 10, 100), 90);
        assert_eq!(moved(90, Motion::Down, 10, 100), 90);
        assert_eq!(moved(85, Motion::PageDown, 10, 100), 90);
        assert_eq!(moved(0, Motion::End, 10, 100), 90);
        assert_eq!(moved(90, Motion::Up, 10, 100), 89);
        assert_eq!(moved(5, Motion::PageDown, 10, 3), 0);
        assert_eq!(moved(5, Motion::PageUp, 0, 100), 4);
        assert_eq!(moved(usize::MAX, Motion::Down, 0, 0), 0);
    }

    #[test]
    fn the_focus_cycles_through_visible_panes() {
        let mut screen = Screen::new(80, 24, 1);
        assert!(!screen.shows_logs(), "a small terminal hides the logs");
        screen.focus = screen.next_pane(true);
        assert_eq!(screen.focus, Pane::Workloads);
        assert_eq!(screen.next_pane(true), Pane::Processes);
        screen.has_services = true;
        assert_eq!(screen.next_pane(true), Pane::Services);
        screen.focus = Pane::Services;
        assert_eq!(screen.next_pane(true), Pane::Processes);
        screen.toggle_logs();
        assert_eq!(screen.next_pane(true), Pane::Logs);
        screen.focus = Pane::Logs;
        assert_eq!(screen.next_pane(true), Pane::Processes);
        assert_eq!(screen.next_pane(false), Pane::Services);
        screen.toggle_logs();
        assert_eq!(screen.focus, Pane::Processes);
    }
}
