//! `mainstay config node`: the configuration of nodes.

mod apply;
mod call;
mod edit;
mod show;
mod validate;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::cli::Global;
use crate::failure::{Failure, Outcome};

/// Show and change the configuration of nodes
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
    mainstay config node show\n  \
    mainstay config node diff config.toml\n  \
    mainstay config node apply config.toml\n  \
    mainstay -n n1,n2 config node apply config.toml --mode try --confirm\n  \
    mainstay config node edit\n\n\
    The keys of the file are in docs/configuration.md. Secrets are never shown.")]
pub enum Node {
    /// Show the configuration in force, without secrets
    #[command(after_help = "Examples:\n  \
        mainstay config node show\n  \
        mainstay -n n1,n2 config node show -o json\n\n\
        Every key is shown, defaults and options of the daemon's command line included.")]
    Show,
    /// Check a configuration file, here or on nodes
    Validate(validate::Validate),
    /// Show what applying a file would change
    Diff(apply::Diff),
    /// Replace the configuration file of nodes and put it in force
    Apply(apply::Apply),
    /// Edit the configuration file of a node
    Edit(edit::Edit),
}

impl Node {
    pub async fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Show => show::show(global).await,
            Self::Validate(validate) => validate.run(global).await,
            Self::Diff(diff) => diff.run(global).await,
            Self::Apply(apply) => apply.run(global).await,
            Self::Edit(edit) => edit.run(global).await,
        }
    }
}

/// Reads a file, or stdin for `-`.
fn read_text(file: &Path) -> Outcome<Vec<u8>> {
    if file == Path::new("-") {
        let mut text = Vec::new();
        let read = std::io::stdin().lock().read_to_end(&mut text);
        read.map_err(|error| Failure::usage(format!("cannot read stdin: {error}")))?;
        return Ok(text);
    }
    let read = std::fs::read(file);
    read.map_err(|error| Failure::usage(Failure::file("read", file, &error).message))
}

/// A file of the command line, for messages.
fn shown(file: &Path) -> PathBuf {
    match file == Path::new("-") {
        true => PathBuf::from("stdin"),
        false => file.to_owned(),
    }
}
