//! `mainstay man`

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use crate::cli::Cli;
use crate::failure::Outcome;
use crate::output;

/// Print the man page, or write one page per command to a directory
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay man | man -l -\n  \
    mainstay man --dir /usr/local/share/man/man1")]
pub struct Man {
    /// Write mainstay.1, mainstay-logs.1, ... to this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Man {
    pub fn run(self) -> Outcome {
        match self.dir {
            Some(dir) => {
                std::fs::create_dir_all(&dir)?;
                Ok(clap_mangen::generate_to(Cli::command(), &dir)?)
            }
            None => {
                let mut page = Vec::new();
                clap_mangen::Man::new(Cli::command()).render(&mut page)?;
                output::print(&String::from_utf8_lossy(&page))
            }
        }
    }
}
