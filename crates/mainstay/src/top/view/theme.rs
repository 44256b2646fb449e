//! Colours by meaning, and the signs that bars are made of.
//!
//! Only the terminal's own sixteen colours, and never as a background: they are legible on dark
//! and on light. Whatever colour says is said by a word, a number or a weight too.

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::bar;

#[derive(Debug, Clone, Copy)]
pub struct Theme {
    colours: bool,
    pub signs: Signs,
}

/// What bars and graphs are drawn with.
#[derive(Debug, Clone, Copy)]
pub struct Signs {
    pub full: &'static str,
    pub half: &'static str,
    pub empty: &'static str,
    pub rule: &'static str,
    pub graph: &'static bar::Set<'static>,
}

const LINES: Signs = Signs {
    full: "━",
    half: "╸",
    empty: "─",
    rule: "─",
    graph: &bar::NINE_LEVELS,
};

const ASCII: Signs = Signs {
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
        let signs = if ascii { ASCII } else { LINES };
        Self { colours, signs }
    }

    /// As the environment asks: `NO_COLOR`, and a console whose font has few signs.
    pub fn from_environment() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let console = set("TERM").is_some_and(|term| term == "linux" || term == "vt100");
        Self::new(set("NO_COLOR").is_none(), console)
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

    /// The title of the pane that keys go to.
    pub fn focused(self) -> Style {
        self.title().add_modifier(Modifier::REVERSED)
    }

    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What is there for those who look for it.
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

    /// How much of something there is no more of.
    pub fn level(self, percent: f64) -> Style {
        match percent {
            90.0.. => self.bad(),
            70.0.. => self.colour(Color::Yellow),
            _ => self.good(),
        }
    }
}
