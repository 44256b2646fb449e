//! The state of the view: data of the nodes, the selection, and the effect of events on both. It
//! neither waits nor draws.

mod order;

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::follow::LogUpdate;
use super::keys::{Action, Mode, Motion};
use super::model::{LogLines, Node, Round};
use super::screen::{Page, Pane, Screen, Sort, moved};
use super::view::layout::{OverviewPanes, Panes};

#[derive(Debug)]
pub struct App {
    pub nodes: Vec<Node>,
    pub screen: Screen,
    /// The followed log.
    pub log: LogLines,
    /// Indexes of the open node's processes that match the filter, in sort order.
    pub processes: Vec<usize>,
    /// Indexes of the nodes, in the sort order of the overview.
    pub order: Vec<usize>,
}

/// The effect of an action on the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    None,
    Quit,
    Suspend,
    Redraw,
}

impl App {
    pub fn new(names: Vec<String>, width: u16, height: u16) -> Self {
        let nodes: Vec<Node> = names.into_iter().map(Node::new).collect();
        Self {
            screen: Screen::new(width, height, nodes.len()),
            log: LogLines::default(),
            processes: Vec::new(),
            order: (0..nodes.len()).collect(),
            nodes,
        }
    }

    /// Returns the open node, or the one under the cursor.
    pub fn node(&self) -> Option<&Node> {
        self.nodes.get(self.screen.node)
    }

    /// Returns the index of the node whose page is visible.
    pub fn open_node(&self) -> Option<usize> {
        (self.screen.page == Page::Node).then_some(self.screen.node)
    }

    /// Returns the log to follow: the selected one if the open node has it, else that of the
    /// daemon.
    pub fn log_id(&self) -> Option<&str> {
        let ids = self.node()?.logs.known()?;
        let chosen = ids
            .iter()
            .find(|id| Some(id.as_str()) == self.screen.log.as_deref());
        let first = ids.iter().find(|id| *id == "mainstay").or(ids.first());
        chosen.or(first).map(String::as_str)
    }

    pub fn apply_round(&mut self, index: usize, round: Round) {
        let Some(node) = self.nodes.get_mut(index) else {
            return;
        };
        let has_processes = round.processes.is_some();
        node.apply_round(round);
        if has_processes && self.open_node() == Some(index) {
            self.sort_processes();
        }
        self.sort_nodes();
        self.choose_panes();
        self.clamp_scroll();
    }

    /// Shows the panes that the open node has something for.
    fn choose_panes(&mut self) {
        let node = self.node();
        let services = node.and_then(|node| node.services.known());
        let has_services = services.is_some_and(|list| !list.services.is_empty());
        let workloads = node.and_then(|node| node.workloads.known());
        let has_workloads = workloads.is_some_and(|workloads| !workloads.list.is_empty());
        self.screen.has_services = has_services;
        self.screen.has_workloads = has_workloads;
        if self.screen.focus == Pane::Services && !has_services {
            self.screen.focus = Pane::Processes;
        }
    }

    pub fn mark_lost(&mut self, index: usize, at: Duration, reason: String) {
        if let Some(node) = self.nodes.get_mut(index) {
            node.mark_lost(at, reason);
        }
    }

    pub fn apply_log(&mut self, update: LogUpdate) {
        match update {
            LogUpdate::Restarted => self.log.clear(),
            LogUpdate::Failed(reason) => self.log.error = Some(reason),
            LogUpdate::Bytes(bytes) => {
                let completed = self.log.push(&bytes);
                // Keep the visible lines while scrolled up.
                if self.screen.lines_below > 0 {
                    self.screen.lines_below += completed;
                }
            }
        }
        self.clamp_scroll();
    }

    pub fn resize(&mut self, width: u16, height: u16) {
        self.screen.width = width;
        self.screen.height = height;
        if self.screen.focus == Pane::Logs && !self.screen.shows_logs() {
            self.screen.focus = Pane::Processes;
        }
        self.clamp_scroll();
    }

    pub fn apply(&mut self, action: Action) -> Effect {
        match action {
            Action::Quit => return Effect::Quit,
            Action::Suspend => return Effect::Suspend,
            Action::Redraw => return Effect::Redraw,
            // Any other key closes the help.
            _ if self.screen.help => self.screen.help = false,
            Action::Help => self.screen.help = true,
            Action::Open => self.open(self.screen.node),
            Action::Back => self.back(),
            Action::Move(motion) => self.scroll(motion),
            Action::NextNode => self.switch_node(true),
            Action::PreviousNode => self.switch_node(false),
            Action::NextPane => self.screen.focus = self.screen.next_pane(true),
            Action::PreviousPane => self.screen.focus = self.screen.next_pane(false),
            Action::Sort(sort) => self.sort(sort),
            Action::EditFilter => self.edit_filter(),
            Action::Type(c) => self.change_filter(|screen| screen.type_into_filter(c)),
            Action::Erase => self.change_filter(|screen| {
                screen.filter.pop();
            }),
            Action::EraseAll => self.change_filter(|screen| screen.filter.clear()),
            Action::EndFilter => self.screen.mode = Mode::Commands,
            Action::ToggleLogs => {
                if self.screen.page == Page::Node {
                    self.screen.toggle_logs();
                }
            }
            Action::NextLog => self.switch_log(true),
            Action::PreviousLog => self.switch_log(false),
        }
        self.clamp_scroll();
        Effect::None
    }

    fn open(&mut self, node: usize) {
        if self.screen.page == Page::Node && self.screen.node == node {
            return;
        }
        self.screen.page = Page::Node;
        self.screen.node = node;
        self.screen.reset_scroll();
        self.sort_processes();
        self.choose_panes();
    }

    fn back(&mut self) {
        if self.screen.mode == Mode::Filter || !self.screen.filter.is_empty() {
            self.screen.mode = Mode::Commands;
            self.change_filter(|screen| screen.filter.clear());
        } else if self.nodes.len() > 1 {
            self.screen.page = Page::Overview;
        }
    }

    fn switch_node(&mut self, forward: bool) {
        let at = self.order.iter().position(|node| *node == self.screen.node);
        let (Some(at), count) = (at, self.order.len()) else {
            return;
        };
        let to = (at + if forward { 1 } else { count - 1 }) % count;
        match self.screen.page {
            Page::Overview => self.screen.node = self.order[to],
            Page::Node => self.open(self.order[to]),
        }
    }

    fn sort(&mut self, sort: Sort) {
        match self.screen.page {
            Page::Overview => {
                self.screen.node_sort = sort;
                self.sort_nodes();
            }
            Page::Node => {
                self.screen.sort = sort;
                self.screen.first_process = 0;
                self.sort_processes();
            }
        }
    }

    fn edit_filter(&mut self) {
        if self.screen.page == Page::Node {
            self.screen.focus = Pane::Processes;
            self.screen.mode = Mode::Filter;
        }
    }

    fn change_filter(&mut self, change: impl FnOnce(&mut Screen)) {
        change(&mut self.screen);
        self.screen.first_process = 0;
        self.sort_processes();
    }

    fn switch_log(&mut self, forward: bool) {
        if !self.screen.shows_logs() {
            return;
        }
        let Some(ids) = self.node().and_then(|node| node.logs.known()) else {
            return;
        };
        let now = ids.iter().position(|id| Some(id.as_str()) == self.log_id());
        let Some(now) = now else { return };
        let to = (now + if forward { 1 } else { ids.len() - 1 }) % ids.len();
        self.screen.log = Some(ids[to].clone());
        self.screen.lines_below = 0;
    }

    fn scroll(&mut self, motion: Motion) {
        if self.screen.page == Page::Overview {
            let at = self.order.iter().position(|node| *node == self.screen.node);
            let page = OverviewPanes::arrange(&self.screen).rows();
            // A cursor moves here, not a page, so it may reach the last row.
            let last = self.order.len().saturating_sub(1);
            let to = moved(at.unwrap_or(0), motion, page, usize::MAX).min(last);
            self.screen.node = self.order.get(to).copied().unwrap_or(0);
            return;
        }
        let panes = Panes::arrange(&self.screen);
        match self.screen.focus {
            Pane::Processes => {
                let (page, length) = (panes.process_rows(), self.processes.len());
                self.screen.first_process = moved(self.screen.first_process, motion, page, length);
            }
            Pane::Workloads => {
                let (page, length) = (panes.workload_rows(), self.workload_count());
                self.screen.first_workload =
                    moved(self.screen.first_workload, motion, page, length);
            }
            Pane::Services => {
                let (page, length) = (panes.service_rows(), self.service_count());
                self.screen.first_service = moved(self.screen.first_service, motion, page, length);
            }
            Pane::Logs => {
                // Counted from the end, where the latest line is.
                let opposite = match motion {
                    Motion::Up => Motion::Down,
                    Motion::Down => Motion::Up,
                    Motion::PageUp => Motion::PageDown,
                    Motion::PageDown => Motion::PageUp,
                    Motion::Home => Motion::End,
                    Motion::End => Motion::Home,
                };
                let (page, length) = (panes.log_rows(), self.log.len());
                self.screen.lines_below = moved(self.screen.lines_below, opposite, page, length);
            }
        }
    }

    fn workload_count(&self) -> usize {
        let workloads = self.node().and_then(|node| node.workloads.known());
        workloads.map_or(0, |workloads| workloads.list.len())
    }

    fn service_count(&self) -> usize {
        let services = self.node().and_then(|node| node.services.known());
        services.map_or(0, |services| services.services.len())
    }

    fn sort_processes(&mut self) {
        self.processes.clear();
        let Some(processes) = self
            .nodes
            .get(self.screen.node)
            .and_then(|node| node.processes.known())
        else {
            return;
        };
        let list = &processes.list;
        let text = self.screen.filter.to_lowercase();
        let passes = |index: &usize| text.is_empty() || list[*index].matches(&text);
        self.processes.extend((0..list.len()).filter(passes));
        let sort = self.screen.sort;
        self.processes
            .sort_unstable_by(|a, b| order::processes(sort, &list[*a], &list[*b]));
    }

    fn sort_nodes(&mut self) {
        self.order = (0..self.nodes.len()).collect();
        let (sort, nodes) = (self.screen.node_sort, &self.nodes);
        self.order
            .sort_by(|a, b| order::nodes(sort, &nodes[*a], &nodes[*b]));
    }

    /// Keeps every list within its bounds, and the cursor visible.
    fn clamp_scroll(&mut self) {
        let panes = Panes::arrange(&self.screen);
        let bound =
            |first: usize, page: usize, length: usize| first.min(length.saturating_sub(page));
        let services = self.service_count();
        let workloads = self.workload_count();
        let screen = &mut self.screen;
        screen.first_process = bound(
            screen.first_process,
            panes.process_rows(),
            self.processes.len(),
        );
        screen.first_service = bound(screen.first_service, panes.service_rows(), services);
        screen.first_workload = bound(screen.first_workload, panes.workload_rows(), workloads);
        screen.lines_below = bound(screen.lines_below, panes.log_rows(), self.log.len());
        let page = OverviewPanes::arrange(screen).rows().max(1);
        let cursor = self.order.iter().position(|node| *node == screen.node);
        let cursor = cursor.unwrap_or(0);
        let lowest = (cursor + 1).saturating_sub(page);
        screen.first_node = bound(
            screen.first_node.clamp(lowest, cursor),
            page,
            self.order.len(),
        );
    }
}
