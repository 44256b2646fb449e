//! Services with state and health.

use mainstay_api::machine::ServiceInfo;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::View;
use super::widgets::{fit, row, titled};
use crate::model::{Node, Reading};
use crate::screen::Pane;
use mainstay_client::format::printable;

impl View<'_> {
    pub fn services(self, frame: &mut Frame<'_>, area: Rect, node: &Node) {
        if area.is_empty() {
            return;
        }
        let services = node.services.known().map(|list| list.services.as_slice());
        let mut details = Vec::new();
        if let Some(services) = services {
            let down = services.iter().filter(|service| !is_up(service)).count();
            details.push(self.strong(services.len().to_string()));
            if down > 0 {
                details.push(Span::styled(format!("{down} not up"), self.theme.bad()));
            }
        }
        let title = self.title("services", Some(Pane::Services));
        let area = titled(frame, area, self.theme, title, details);
        let Some(services) = services else {
            if let Reading::Unavailable(reason) = &node.services {
                let text = format!("the node does not list its services: {reason}");
                return self.message(frame, area, &text);
            }
            return self.placeholder(frame, area, &node.services);
        };
        let name_width = usize::from(area.width / 3).clamp(8, 24);
        let seen = services.iter().skip(self.app.screen.first_service);
        for (index, service) in (0..area.height).zip(seen) {
            row(frame, area, index, &self.service(service, name_width));
        }
    }

    fn service(self, service: &ServiceInfo, name_width: usize) -> Line<'static> {
        let state = fit(&printable(&service.state), 12);
        let style = if is_up(service) {
            self.theme.good()
        } else {
            self.theme.bad()
        };
        let mut line = Line::from(vec![
            Span::raw(format!("{} ", fit(&printable(&service.id), name_width))),
            Span::styled(state, style),
        ]);
        let health = service.health.as_ref().filter(|health| !health.unknown);
        let last = service
            .events
            .as_ref()
            .and_then(|events| events.events.last());
        match health {
            Some(health) if health.healthy => line.push_span(self.faint("healthy")),
            Some(health) => {
                let why = printable(&health.last_message);
                line.push_span(Span::styled(format!("unhealthy {why}"), self.theme.bad()));
            }
            None => {
                if let Some(event) = last {
                    line.push_span(self.faint(printable(&event.msg)));
                }
            }
        }
        line
    }
}

/// Returns `true` for a service that is finished, skipped, or running and not unhealthy.
fn is_up(service: &ServiceInfo) -> bool {
    match service.state.as_str() {
        "Finished" | "Skipped" => true,
        "Running" => service
            .health
            .as_ref()
            .is_none_or(|health| health.unknown || health.healthy),
        _ => false,
    }
}
