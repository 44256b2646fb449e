//! `mainstay completion`

use clap::{Args, ValueEnum};
use clap_complete::Shell;

use crate::completion;
use crate::failure::Outcome;
use crate::output;

/// Print a shell completion script
///
/// The shell then completes commands and options, and values of the node: logs, cells, executables,
/// containers, paths, nodes and contexts. A node that does not answer within 2 s has none.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay completion bash > /etc/bash_completion.d/mainstay\n  \
    mainstay completion zsh > /usr/local/share/zsh/site-functions/_mainstay\n  \
    mainstay completion fish > ~/.config/fish/completions/mainstay.fish")]
pub struct Completion {
    /// Shell to complete for
    #[arg(value_enum)]
    shell: Shell,
}

impl Completion {
    pub fn run(self) -> Outcome {
        let shell = self.shell.to_possible_value();
        let shell = shell.as_ref().map_or("", |shell| shell.get_name());
        output::print_raw(&completion::script(shell)?)
    }
}
