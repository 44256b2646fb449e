//! The progress of sequences on stderr: a line that changes for each node on a terminal, a line for
//! each phase elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use mainstay_client::format::printable;
use mainstay_client::sequence::SequenceStep;

const TICK: Duration = Duration::from_millis(120);

pub struct Progress {
    bars: Option<MultiProgress>,
    has_many_nodes: bool,
}

/// The progress of one node.
pub struct NodeProgress {
    bar: Option<ProgressBar>,
    prefix: String,
}

impl Progress {
    pub fn new(has_many_nodes: bool) -> Self {
        Self {
            bars: std::io::stderr().is_terminal().then(MultiProgress::new),
            has_many_nodes,
        }
    }

    pub fn node(&self, name: &str) -> NodeProgress {
        let bar = self.bars.as_ref().map(|bars| {
            let bar = bars.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix}{msg} ({elapsed})") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(TICK);
            bar
        });
        let prefix = match self.has_many_nodes {
            true => format!("{}: ", printable(name)),
            false => String::new(),
        };
        if let Some(bar) = &bar {
            bar.set_prefix(prefix.clone());
        }
        NodeProgress { bar, prefix }
    }

    /// Removes what a terminal shows.
    pub fn finish(&self) {
        if let Some(bars) = &self.bars {
            let _ = bars.clear();
        }
    }
}

impl NodeProgress {
    pub fn step(&self, step: &SequenceStep) {
        // The node chose the names.
        let text = match step {
            SequenceStep::PhaseStarted(phase) => format!("phase {}", printable(phase)),
            SequenceStep::TaskStarted(task) => format!("task {}", printable(task)),
            SequenceStep::ConnectionLost(_) => "connection lost; connecting again".to_owned(),
            SequenceStep::Reconnected => "connected again".to_owned(),
            SequenceStep::PhaseStopped(_) | SequenceStep::TaskStopped(_) => return,
        };
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None => anstream::eprintln!("{}{text}", self.prefix),
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
