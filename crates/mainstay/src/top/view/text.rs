//! Numbers, bars and graphs as they stand on the screen.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{RenderDirection, Sparkline};

use super::theme::Theme;
use crate::output::size;
use crate::top::rates::History;

/// A number that is none, or that does not fit, is 0 or the most there is.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates, which is what is meant"
)]
pub fn whole(number: f64) -> u64 {
    number as u64
}

/// ` 7.3%`, five characters wide; `100%` has no room for more.
pub fn percent(percent: Option<f64>) -> String {
    match percent {
        None => "    -".to_owned(),
        Some(percent) if percent < 99.95 => format!("{percent:>4.1}%"),
        Some(percent) => format!("{:>4}%", whole(percent.round()).min(9999)),
    }
}

/// `1.5 MiB/s`, or `-` as long as nothing is known.
pub fn rate(bytes: Option<f64>) -> String {
    bytes.map_or_else(
        || "-".to_owned(),
        |bytes| format!("{}/s", size(whole(bytes))),
    )
}

/// `1:02.5`, as `ps` and `top` show it.
pub fn cpu_time(seconds: f64) -> String {
    let tenths = whole(seconds * 10.0);
    format!("{}:{:02}.{}", tenths / 600, tenths / 10 % 60, tenths % 10)
}

/// A line that is filled as far as `percent` says.
pub fn bar(theme: Theme, width: u16, percent: Option<f64>) -> Vec<Span<'static>> {
    let cells = usize::from(width);
    let percent = percent.unwrap_or(0.0).clamp(0.0, 100.0);
    let halves = whole((percent / 100.0 * 2.0 * f64::from(width)).round());
    let halves = usize::try_from(halves).unwrap_or(0).min(2 * cells);
    let signs = theme.signs;
    let mut filled = signs.full.repeat(halves / 2);
    if halves % 2 == 1 {
        filled.push_str(signs.half);
    }
    let rest = cells - halves.div_ceil(2);
    vec![
        Span::styled(filled, theme.level(percent)),
        Span::styled(signs.empty.repeat(rest), theme.faint()),
    ]
}

/// The title of a pane, with a rule to its right end; what remains of the pane is returned.
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
        .signs
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

/// Puts a line into one row of an area, if the area has that row.
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

/// A line that ends at the right edge of its area.
pub fn row_at_right(frame: &mut Frame<'_>, area: Rect, index: u16, line: &Line<'_>) {
    let width = u16::try_from(line.width()).unwrap_or(u16::MAX);
    if width <= area.width {
        let place = Rect {
            x: area.x + area.width - width,
            width,
            ..area
        };
        row(frame, place, index, line);
    }
}

/// How a series was lately, the newest value at the right; `most` is as high as the area.
pub fn graph(
    frame: &mut Frame<'_>,
    area: Rect,
    theme: Theme,
    style: Style,
    history: &History,
    most: Option<f64>,
) {
    if area.is_empty() {
        return;
    }
    let values: Vec<f64> = history.newest(area.width.into()).collect();
    // Below this, a quiet line of small numbers would look like a storm.
    let highest = values.iter().copied().fold(1024.0, f64::max);
    let most = most.unwrap_or(highest);
    // The widget counts in whole numbers.
    let scaled = values.iter().map(|value| whole(value / most * 1000.0));
    let graph = Sparkline::default()
        .data(scaled)
        .max(1000)
        .direction(RenderDirection::RightToLeft)
        .bar_set(theme.signs.graph.clone())
        .style(style);
    frame.render_widget(graph, area);
}

/// `text`, cut or filled to exactly `width` columns.
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
    fn numbers_keep_their_place() {
        assert_eq!(percent(Some(7.26)), " 7.3%");
        assert_eq!(percent(Some(99.96)), " 100%");
        assert_eq!(percent(Some(1234.0)), "1234%");
        assert_eq!(percent(Some(f64::MAX)), "9999%");
        assert_eq!(percent(None), "    -");
        assert_eq!(rate(Some(1536.0)), "1.5 KiB/s");
        assert_eq!(cpu_time(62.55), "1:02.5");
        assert_eq!(cpu_time(-1.0), "0:00.0");
        assert_eq!(whole(f64::NAN), 0);
    }

    #[test]
    fn a_bar_is_exactly_as_wide_as_asked() {
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
    fn text_is_cut_by_what_it_takes_on_the_screen() {
        assert_eq!(fit("ab", 4), "ab  ");
        assert_eq!(fit("abcd", 2), "ab");
        assert_eq!(fit("日本", 3), "日 ");
    }
}
