//! `mainstay completion`

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::Outcome;
use crate::output;

/// Print a shell completion script
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay completion bash > /etc/bash_completion.d/mainstay\n  \
    source <(mainstay completion zsh)\n  \
    mainstay completion fish > ~/.config/fish/completions/mainstay.fish")]
pub struct Completion {
    /// Shell to complete for
    #[arg(value_enum)]
    shell: Shell,
}

impl Completion {
    pub fn run(self) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "mainstay", &mut script);
        output::print(&String::from_utf8_lossy(&script))
    }
}
