//! Areas of the panes. A pane without room has an empty area and is not drawn.

use ratatui::layout::Rect;

use crate::screen::{Pane, Screen};

/// Smaller terminals show one pane only.
const MIN_WIDTH: u16 = 40;
const MIN_BODY: u16 = 8;
/// Minimum width to show containers, cells and services beside the processes.
const MIN_SIDE_WIDTH: u16 = 110;

/// Minimum height of each of two panes above each other.
const MIN_SIDE_HEIGHT: u16 = 3;

/// Panes of a node's page.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Panes {
    pub header: Rect,
    pub cpu: Rect,
    pub memory: Rect,
    pub disks: Rect,
    pub network: Rect,
    pub processes: Rect,
    pub workloads: Rect,
    pub services: Rect,
    pub logs: Rect,
    pub footer: Rect,
}

impl Panes {
    pub fn arrange(screen: &Screen) -> Self {
        let (header, body, footer) = frame(screen);
        let mut panes = Self {
            header,
            footer,
            ..Self::default()
        };
        let mut lower = body;
        if body.height >= MIN_BODY && body.width >= MIN_WIDTH {
            let (upper, rest) = cut_top(lower, (body.height / 5).clamp(5, 12));
            (panes.cpu, panes.memory) = halves(upper);
            lower = rest;
            if body.height >= MIN_BODY + 6 {
                let (upper, rest) = cut_top(lower, (body.height / 6).clamp(4, 10));
                (panes.disks, panes.network) = halves(upper);
                lower = rest;
            }
        }
        if screen.shows_logs() {
            let height = (lower.height / 3).clamp(4, 16);
            if lower.height >= height + 4 {
                let (rest, logs) = cut_top(lower, lower.height - height);
                panes.logs = logs;
                lower = rest;
            } else if screen.focus == Pane::Logs {
                panes.logs = lower;
                return panes;
            }
        }
        let focus = screen.focus;
        // Nothing beside the processes is better than an empty pane.
        let workloads = screen.has_workloads || focus == Pane::Workloads;
        let services = screen.has_services || focus == Pane::Services;
        if lower.width >= MIN_SIDE_WIDTH && (workloads || services) {
            let (left, right) = cut_left(lower, lower.width - (lower.width / 3).min(56));
            panes.processes = left;
            match (workloads, services) {
                (true, true) if right.height >= 2 * MIN_SIDE_HEIGHT => {
                    (panes.workloads, panes.services) = cut_top(right, right.height.div_ceil(2));
                }
                (true, _) if focus != Pane::Services => panes.workloads = right,
                _ => panes.services = right,
            }
        } else if focus == Pane::Workloads {
            panes.workloads = lower;
        } else if focus == Pane::Services {
            panes.services = lower;
        } else {
            panes.processes = lower;
        }
        panes
    }

    /// Returns the visible rows below the title and the column names.
    pub fn process_rows(&self) -> usize {
        self.processes.height.saturating_sub(2).into()
    }

    pub fn workload_rows(&self) -> usize {
        self.workloads.height.saturating_sub(1).into()
    }

    pub fn service_rows(&self) -> usize {
        self.services.height.saturating_sub(1).into()
    }

    pub fn log_rows(&self) -> usize {
        self.logs.height.saturating_sub(1).into()
    }
}

/// Panes of the overview.
#[derive(Debug)]
pub struct OverviewPanes {
    pub header: Rect,
    pub nodes: Rect,
    pub footer: Rect,
}

impl OverviewPanes {
    pub fn arrange(screen: &Screen) -> Self {
        let (header, nodes, footer) = frame(screen);
        Self {
            header,
            nodes,
            footer,
        }
    }

    /// Returns the visible rows below the column names.
    pub fn rows(&self) -> usize {
        self.nodes.height.saturating_sub(1).into()
    }
}

fn frame(screen: &Screen) -> (Rect, Rect, Rect) {
    let all = Rect::new(0, 0, screen.width, screen.height);
    let (header, rest) = cut_top(all, 1);
    let footer = u16::from(all.height >= 6);
    let (body, footer) = cut_top(rest, rest.height - footer);
    (header, body, footer)
}

fn cut_top(area: Rect, height: u16) -> (Rect, Rect) {
    let height = height.min(area.height);
    let top = Rect { height, ..area };
    let rest = Rect {
        y: area.y + height,
        height: area.height - height,
        ..area
    };
    (top, rest)
}

/// Splits an area, leaving one empty column between the two.
fn cut_left(area: Rect, width: u16) -> (Rect, Rect) {
    let width = width.min(area.width);
    let left = Rect {
        width: width.saturating_sub(1),
        ..area
    };
    let rest = Rect {
        x: area.x + width,
        width: area.width - width,
        ..area
    };
    (left, rest)
}

fn halves(area: Rect) -> (Rect, Rect) {
    cut_left(area, area.width.div_ceil(2))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_small_terminal_shows_processes_and_a_large_one_every_pane() {
        let small = Panes::arrange(&Screen::new(80, 24, 1));
        assert_eq!((small.process_rows(), small.services.area()), (11, 0));
        let mut screen = Screen::new(200, 60, 1);
        let alone = Panes::arrange(&screen);
        assert_eq!(alone.processes.width, 200, "nothing else to show");
        screen.has_workloads = true;
        screen.has_services = true;
        let large = Panes::arrange(&screen);
        let side = [large.workloads, large.services];
        for pane in [large.processes, side[0], side[1], large.logs, large.disks] {
            assert!(pane.area() > 0, "{large:?}");
        }
        assert!(large.process_rows() >= 15);
    }

    #[test]
    fn the_focused_pane_is_always_visible() {
        for focus in [Pane::Processes, Pane::Workloads, Pane::Services, Pane::Logs] {
            for (width, height) in [(20, 5), (80, 10), (80, 24), (200, 60)] {
                let mut screen = Screen::new(width, height, 1);
                if !screen.shows_logs() {
                    screen.toggle_logs();
                }
                screen.focus = focus;
                let panes = Panes::arrange(&screen);
                let pane = match focus {
                    Pane::Processes => panes.processes,
                    Pane::Workloads => panes.workloads,
                    Pane::Services => panes.services,
                    Pane::Logs => panes.logs,
                };
                assert!(pane.area() > 0, "{focus:?} at {width}x{height}");
            }
        }
    }

    proptest! {
        #[test]
        fn panes_fit_the_terminal_and_never_overlap(
            width in 0..300_u16,
            height in 0..100_u16,
            logs: bool,
            has_workloads: bool,
            has_services: bool,
            focus in prop::sample::select(vec![
                Pane::Processes, Pane::Workloads, Pane::Services, Pane::Logs,
            ]),
        ) {
            let mut screen = Screen::new(width, height, 1);
            if logs {
                screen.toggle_logs();
            }
            screen.focus = focus;
            screen.has_workloads = has_workloads;
            screen.has_services = has_services;
            let panes = Panes::arrange(&screen);
            let all = [
                panes.header, panes.cpu, panes.memory, panes.disks, panes.network,
                panes.processes, panes.workloads, panes.services, panes.logs, panes.footer,
            ];
            let terminal = Rect::new(0, 0, width, height);
            for (index, pane) in all.iter().enumerate() {
                prop_assert_eq!(pane.intersection(terminal).area(), pane.area());
                for other in &all[index + 1..] {
                    let shared = pane.area() > 0 && other.area() > 0 && pane.intersects(*other);
                    prop_assert!(!shared, "{pane:?} {other:?}");
                }
            }
        }
    }
}
