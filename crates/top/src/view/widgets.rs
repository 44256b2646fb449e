//! Numbers, bars, graphs and rows.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{RenderDirection, Sparkline};

use super::theme::Theme;
use crate::rates::History;
use mainstay_client::format::size;

/// Converts to an integer; NaN becomes 0, and other values saturate.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturation is intended"
)]
pub fn whole(number: f64) -> u64 {
    number as u64
}

/// Formats a percentage five characters wide: ` 7.3%`, ` 100%`.
pub fn percent(percent: Option<f64>) -> String {
    match percent {
        None => "    -".to_owned(),
        Some(percent) if percent < 99.95 => format!("{percent:>4.1}%"),
        Some(percent) => format!("{:>4}%", whole(percent.round()).min(9999)),
    }
}

/// Formats bytes per second: `1.5 MiB/s`, or `-` if unknown.
pub fn rate(bytes: Option<f64>) -> String {
    bytes.map_or_else(
        || "-".to_owned(),
        |bytes| format!("{}/s", size(whole(bytes))),
    )
}

/// Returns a horizontal bar.
pub fn bar(theme: Theme, width: u16, percent: Option<f64>) -> Vec<Span<'static>> {
    let cells = usize::from(width);
    let percent = percent.unwrap_or(0.0).clamp(0.0, 100.0);
    let halves = whole((percent / 100.0 * 2.0 * f64::from(width)).round());
    let halves = usize::try_from(halves).unwrap_or(0).min(2 * cells);
    let symbols = theme.symbols;
    let mut filled = symbols.full.repeat(halves / 2);
    if halves % 2 == 1 {
        filled.push_str(symbols.half);
    }
    let rest = cells - halves.div_ceil(2);
    vec![
        Span::styled(filled, theme.level(percent)),
        Span::styled(symbols.empty.repeat(rest), theme.faint()),
    ]
}

/// Draws the title of a pane with a rule. Returns the area below.
pub fn titled(
    frame: &mut Frame<'_>,
    area: Rect,
    theme: Theme,
    title: Span<'static>,
    details: Vec<Span<'static>>,
) -> Rect {
    let mut line = Line::from(vec![title]);
    for detail in details {
        line.push_span(Span::raw("  "));
        line.push_span(detail);
    }
    line.push_span(Span::raw(" "));
    let used = u16::try_from(line.width()).unwrap_or(u16::MAX);
    let rule = theme
        .symbols
        .rule
        .repeat(area.width.saturating_sub(used).into());
    line.push_span(Span::styled(rule, theme.faint()));
    row(frame, area, 0, &line);
    Rect {
        y: area.y.saturating_add(1),
        height: area.height.saturating_sub(1),
        ..area
    }
}

/// Draws a line in one row of an area, if the area has that row.
pub fn row(frame: &mut Frame<'_>, area: Rect, index: u16, line: &Line<'_>) {
    let row = Rect {
        y: area.y.saturating_add(index),
        height: 1,
        ..area
    };
    if index < area.height && !row.intersection(frame.area()).is_empty() {
        frame.buffer_mut().set_line(row.x, row.y, line, area.width);
    }
}

/// Draws a line aligned to the right edge of an area.
pub fn row_at_right(frame: &mut Frame<'_>, area: Rect, index: u16, line: &Line<'_>) {
    let width = u16::try_from(line.width()).unwrap_or(u16::MAX);
    if width <= area.width {
        let right = Rect {
            x: area.x + area.width - width,
            width,
            ..area
        };
        row(frame, right, index, line);
    }
}

/// Draws a history with the latest value at the right; `max` is the full height.
pub fn graph(
    frame: &mut Frame<'_>,
    area: Rect,
    theme: Theme,
    style: Style,
    history: &History,
    max: Option<f64>,
) {
    if area.is_empty() {
        return;
    }
    let values: Vec<f64> = history.newest(area.width.into()).collect();
    // A floor, so that small rates do not fill the graph.
    let highest = values.iter().copied().fold(1024.0, f64::max);
    let max = max.unwrap_or(highest);
    // The widget takes integers.
    let scaled = values.iter().map(|value| whole(value / max * 1000.0));
    let graph = Sparkline::default()
        .data(scaled)
        .max(1000)
        .direction(RenderDirection::RightToLeft)
        .bar_set(theme.symbols.graph.clone())
        .style(style);
    frame.render_widget(graph, area);
}

/// Cuts or pads `text` to exactly `width` columns.
pub fn fit(text: &str, width: usize) -> String {
    let mut fitted = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = Span::raw(c.to_string()).width();
        if used + wide > width {
            break;
        }
        used += wide;
        fitted.push(c);
    }
    fitted.extend(std::iter::repeat_n(' ', width - used));
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_fixed_width() {
        assert_eq!(percent(Some(7.26)), " 7.3%");
        assert_eq!(percent(Some(99.96)), " 100%");
        assert_eq!(percent(Some(1234.0)), "1234%");
        assert_eq!(percent(Some(f64::MAX)), "9999%");
        assert_eq!(percent(None), "    -");
        assert_eq!(rate(Some(1536.0)), "1.5 KiB/s");
        assert_eq!(whole(f64::NAN), 0);
    }

    #[test]
    fn a_bar_has_the_given_width() {
        let theme = Theme::new(true, false);
        for (filled, bar_text) in [
            (None, "────"),
            (Some(50.0), "━━──"),
            (Some(63.0), "━━╸─"),
            (Some(100.0), "━━━━"),
            (Some(f64::INFINITY), "━━━━"),
        ] {
            let spans = bar(theme, 4, filled);
            let text: String = spans.iter().map(|span| span.content.as_ref()).collect();
            assert_eq!(text, bar_text, "{filled:?}");
        }
        assert!(
            bar(theme, 0, Some(50.0))
                .iter()
                .all(|span| span.width() == 0)
        );
    }

    #[test]
    fn text_is_cut_by_display_width() {
        assert_eq!(fit("ab", 4), "ab  ");
        assert_eq!(fit("abcd", 2), "ab");
        assert_eq!(fit("日本", 3), "日 ");
    }
}
