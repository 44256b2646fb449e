//! Colours by meaning, and the symbols of bars and graphs.
//!
//! Only the terminal's own sixteen colours, and never as a background: they are legible on dark
//! and on light terminals. Every colour is accompanied by a word, a number or a weight.

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::bar;

#[derive(Debug, Clone, Copy)]
pub struct Theme {
    colours: bool,
    pub symbols: Symbols,
}

/// Symbols of bars and graphs.
#[derive(Debug, Clone, Copy)]
pub struct Symbols {
    pub full: &'static str,
    pub half: &'static str,
    pub empty: &'static str,
    pub rule: &'static str,
    pub graph: &'static bar::Set<'static>,
}

const LINES: Symbols = Symbols {
    full: "━",
    half: "╸",
    empty: "─",
    rule: "─",
    graph: &bar::NINE_LEVELS,
};

const ASCII: Symbols = Symbols {
    full: "#",
    half: "#",
    empty: ".",
    rule: "-",
    graph: &bar::Set {
        full: "#",
        seven_eighths: "#",
        three_quarters: "*",
        five_eighths: "+",
        half: "=",
        three_eighths: "-",
        one_quarter: ":",
        one_eighth: ".",
        empty: " ",
    },
};

impl Theme {
    pub fn new(colours: bool, ascii: bool) -> Self {
        let symbols = if ascii { ASCII } else { LINES };
        Self { colours, symbols }
    }

    /// Returns the theme for `NO_COLOR` and `TERM`; consoles with few glyphs get ASCII.
    pub fn from_environment() -> Self {
        let term = std::env::var_os("TERM");
        let console = term.is_some_and(|term| term == "linux" || term == "vt100");
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self::new(!no_color, console)
    }

    fn colour(self, colour: Color) -> Style {
        if self.colours {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }

    pub fn title(self) -> Style {
        self.colour(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// Title of the focused pane.
    pub fn focused(self) -> Style {
        self.title().add_modifier(Modifier::REVERSED)
    }

    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Secondary text.
    pub fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub fn cursor(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub fn good(self) -> Style {
        self.colour(Color::Green)
    }

    pub fn bad(self) -> Style {
        self.colour(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub fn graph(self) -> Style {
        self.colour(Color::Cyan)
    }

    pub fn second_graph(self) -> Style {
        self.colour(Color::Magenta)
    }

    /// Style of a usage in percent.
    pub fn level(self, percent: f64) -> Style {
        match percent {
            90.0.. => self.bad(),
            70.0.. => self.colour(Color::Yellow),
            _ => self.good(),
        }
    }
}
