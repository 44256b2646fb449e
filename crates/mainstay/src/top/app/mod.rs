//! The program's state: what is known of the nodes, what is looked at, and what each event does to
//! both. Neither waits nor draws.

mod order;

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::follow::LogNews;
use super::keys::{Action, Mode, Motion};
use super::model::{LogLines, Node, Round};
use super::screen::{Page, Pane, Screen, Sort, moved};
use super::view::layout::{OverviewPanes, Panes};

#[derive(Debug)]
pub struct App {
    pub nodes: Vec<Node>,
    pub screen: Screen,
    /// The log that is followed.
    pub log: LogLines,
    /// The processes of the open node that pass the filter, in their order, by their place in the
    /// list.
    pub processes: Vec<usize>,
    /// The nodes in the order of the overview.
    pub order: Vec<usize>,
}

/// What is left to do for whoever holds the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    Nothing,
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

    /// The node that is open or under the cursor.
    pub fn node(&self) -> Option<&Node> {
        self.nodes.get(self.screen.node)
    }

    /// The node whose page is shown.
    pub fn open_node(&self) -> Option<usize> {
        (self.screen.page == Page::Node).then_some(self.screen.node)
    }

    /// The log to follow: the chosen one if the open node has it. A node's own log would show
    /// little but the questions of this program, so it is not the first choice.
    pub fn log_id(&self) -> Option<&str> {
        let ids = self.node()?.logs.known()?;
        let chosen = ids
            .iter()
            .find(|id| Some(id.as_str()) == self.screen.log.as_deref());
        let first = ids.iter().find(|id| *id != "mainstay").or(ids.first());
        chosen.or(first).map(String::as_str)
    }

    pub fn take_in(&mut self, index: usize, round: Round) {
        let Some(node) = self.nodes.get_mut(index) else {
            return;
        };
        let processes_came = round.processes.is_some();
        node.take_in(round);
        if processes_came && self.open_node() == Some(index) {
            self.arrange_processes();
        }
        self.arrange_nodes();
        self.settle();
    }

    pub fn lose(&mut self, index: usize, at: Duration, why: String) {
        if let Some(node) = self.nodes.get_mut(index) {
            node.lose(at, why);
        }
    }

    pub fn take_in_log(&mut self, news: LogNews) {
        match news {
            LogNews::Anew => self.log.clear(),
            LogNews::Trouble(why) => self.log.trouble = Some(why),
            LogNews::Bytes(bytes) => {
                let completed = self.log.push(&bytes);
                // Who reads further up keeps the line in sight.
                if self.screen.lines_below > 0 {
                    self.screen.lines_below += completed;
                }
            }
        }
        self.settle();
    }

    pub fn resize(&mut self, width: u16, height: u16) {
        self.screen.width = width;
        self.screen.height = height;
        if self.screen.focus == Pane::Logs && !self.screen.shows_logs() {
            self.screen.focus = Pane::Processes;
        }
        self.settle();
    }

    pub fn apply(&mut self, action: Action) -> Wish {
        match action {
            Action::Quit => return Wish::Quit,
            Action::Suspend => return Wish::Suspend,
            Action::Redraw => return Wish::Redraw,
            // Any key but those closes the help.
            _ if self.screen.help => self.screen.help = false,
            Action::Help => self.screen.help = true,
            Action::Open => self.open(self.screen.node),
            Action::Back => self.back(),
            Action::Move(motion) => self.go(motion),
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
        self.settle();
        Wish::Nothing
    }

    fn open(&mut self, node: usize) {
        if self.screen.page == Page::Node && self.screen.node == node {
            return;
        }
        self.screen.page = Page::Node;
        self.screen.node = node;
        self.screen.rewind();
        self.arrange_processes();
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
                self.arrange_nodes();
            }
            Page::Node => {
                self.screen.sort = sort;
                self.screen.first_process = 0;
                self.arrange_processes();
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
        self.arrange_processes();
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

    fn go(&mut self, motion: Motion) {
        if self.screen.page == Page::Overview {
            let at = self.order.iter().position(|node| *node == self.screen.node);
            let page = OverviewPanes::arrange(&self.screen).rows();
            // Not a page is moved here but a cursor, which goes to the very end.
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
            Pane::Services => {
                let (page, length) = (panes.service_rows(), self.service_count());
                self.screen.first_service = moved(self.screen.first_service, motion, page, length);
            }
            Pane::Logs => {
                // Counted from the end, where the newest line is.
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

    fn service_count(&self) -> usize {
        let services = self.node().and_then(|node| node.services.known());
        services.map_or(0, |services| services.services.len())
    }

    fn arrange_processes(&mut self) {
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

    fn arrange_nodes(&mut self) {
        self.order = (0..self.nodes.len()).collect();
        let (sort, nodes) = (self.screen.node_sort, &self.nodes);
        self.order
            .sort_by(|a, b| order::nodes(sort, &nodes[*a], &nodes[*b]));
    }

    /// Keeps every list within its bounds, and the cursor in sight.
    fn settle(&mut self) {
        let panes = Panes::arrange(&self.screen);
        let bound =
            |first: usize, page: usize, length: usize| first.min(length.saturating_sub(page));
        let services = self.service_count();
        let screen = &mut self.screen;
        screen.first_process = bound(
            screen.first_process,
            panes.process_rows(),
            self.processes.len(),
        );
        screen.first_service = bound(screen.first_service, panes.service_rows(), services);
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
