//! Disks, file systems and network devices.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::View;
use super::widgets::{bar, fit, graph, percent, rate, row, titled};
use crate::model::{Mount, Node, Reading, Traffic};
use mainstay_client::format::{printable, size};

impl View<'_> {
    pub fn disks(self, frame: &mut Frame<'_>, area: Rect, node: &Node) {
        if area.is_empty() {
            return;
        }
        let disks = node.disks.known();
        let devices = disks.map_or(&[][..], |disks| &disks.devices);
        let mounts = node.mounts.known().map_or(&[][..], Vec::as_slice);
        let room = usize::from(area.height.saturating_sub(1));
        // Each gets half of the rows, and the rows the other leaves.
        let shown_mounts = mounts.len().min(room - (room / 2).min(devices.len()));
        let shown_devices = devices.len().min(room - shown_mounts);
        let mut details = self.both("r", "w", disks.and_then(|disks| disks.total));
        let hidden = devices.len() + mounts.len() - shown_devices - shown_mounts;
        if hidden > 0 {
            details.push(self.faint(format!("{hidden} more")));
        }
        let title = self.title("disks", None);
        let area = titled(frame, area, self.theme, title, details);
        if devices.is_empty() && mounts.is_empty() {
            return self.placeholder(frame, area, &node.disks);
        }
        let name_width = usize::from(area.width.saturating_sub(32)).clamp(4, 24);
        let mut lines = Vec::new();
        for mount in &mounts[..shown_mounts] {
            lines.push(self.mount(mount, area.width));
        }
        for device in &devices[..shown_devices] {
            let traffic = device.traffic;
            lines.push(Line::from(vec![
                Span::raw(fit(&printable(&device.name), name_width)),
                self.faint(" r "),
                Span::raw(format!("{:>10}", rate(traffic.map(|t| t.inward)))),
                self.faint(" w "),
                Span::raw(format!("{:>10}", rate(traffic.map(|t| t.outward)))),
                Span::raw(format!(" {}", percent(device.busy))),
            ]));
        }
        for (index, line) in (0_u16..).zip(&lines) {
            row(frame, area, index, line);
        }
    }

    fn mount(self, mount: &Mount, width: u16) -> Line<'static> {
        let name = (width / 3).clamp(6, 30);
        let used = mount.percent();
        let mut line = Line::from(vec![Span::raw(format!(
            "{} ",
            fit(&printable(&mount.mounted_on), name.into())
        ))]);
        line.extend(bar(self.theme, width.saturating_sub(name + 19), Some(used)));
        line.push_span(Span::raw(format!(" {}", percent(Some(used)))));
        line.push_span(self.faint(format!(" of {:>8}", size(mount.size))));
        line
    }

    pub fn network(self, frame: &mut Frame<'_>, area: Rect, node: &Node) {
        if area.is_empty() {
            return;
        }
        let total = node.network.known().and_then(|network| network.total);
        let mut details = self.both("in", "out", total);
        let devices = node
            .network
            .known()
            .map_or(0, |network| network.devices.len());
        let room = usize::from(area.height.saturating_sub(1));
        if devices > room {
            details.push(self.faint(format!("{} more", devices - room)));
        }
        let title = self.title("network", None);
        let area = titled(frame, area, self.theme, title, details);
        let network = match &node.network {
            Reading::Known(network) => network,
            other => return self.placeholder(frame, area, other),
        };
        let name_width = usize::from(area.width.saturating_sub(30)).clamp(4, 16);
        let mut used = 0;
        for device in network.devices.iter().take(room) {
            let traffic = device.traffic;
            let line = Line::from(vec![
                Span::raw(fit(&printable(&device.name), name_width)),
                self.faint(" in "),
                Span::raw(format!("{:>10}", rate(traffic.map(|t| t.inward)))),
                self.faint(" out "),
                Span::raw(format!("{:>10}", rate(traffic.map(|t| t.outward)))),
            ]);
            row(frame, area, used, &line);
            used += 1;
        }
        let rest = Rect {
            y: area.y.saturating_add(used),
            height: area.height.saturating_sub(used),
            ..area
        };
        if rest.height < 2 {
            return;
        }
        let half = rest.width / 2;
        let series = [
            ("in", 0, self.theme.graph(), &network.received),
            ("out", half, self.theme.second_graph(), &network.sent),
        ];
        for (name, offset, style, history) in series {
            let half_area = Rect {
                x: rest.x + offset,
                width: half.saturating_sub(1),
                ..rest
            };
            row(frame, half_area, 0, &Line::from(self.faint(name)));
            let below = Rect {
                y: half_area.y.saturating_add(1),
                height: half_area.height.saturating_sub(1),
                ..half_area
            };
            graph(frame, below, self.theme, style, history, None);
        }
    }

    fn both(self, inward: &str, outward: &str, traffic: Option<Traffic>) -> Vec<Span<'static>> {
        let one = |way: &str, bytes: Option<f64>| format!("{way} {}", rate(bytes));
        vec![
            self.strong(one(inward, traffic.map(|traffic| traffic.inward))),
            self.strong(one(outward, traffic.map(|traffic| traffic.outward))),
        ]
    }
}
