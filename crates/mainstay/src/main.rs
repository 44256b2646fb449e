//! `mainstay`: the node daemon and every client command, in one binary.

mod build_info;
mod cli;
mod commands;
mod completion;
mod connection;
#[cfg(test)]
mod documentation;
mod environment;
mod failure;
mod output;

use std::process::ExitCode;

use clap::CommandFactory;
use failure::Exit;

fn main() -> ExitCode {
    // The daemon re-executes itself as the zygote that forks shims. Before anything else, because
    // every shim inherits a copy of the memory.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == "shim")
    {
        // SAFETY: first in `main`: one thread, nothing opened, no child, no signal handler.
        #[allow(unsafe_code)]
        return match unsafe { mainstay_cells::zygote::run() } {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    if let Some(exit) = completion::answer() {
        return exit;
    }
    // Without arguments there is nothing to be wrong with: the help is the answer.
    if std::env::args_os().len() < 2 {
        let _ = cli::Cli::command().print_help();
        return ExitCode::SUCCESS;
    }
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are printed to stdout and succeed.
            let _ = error.print();
            let exit = match error.use_stderr() {
                true => Exit::Usage,
                false => Exit::Success,
            };
            return ExitCode::from(exit.code());
        }
    };
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
