//! `mainstay`: the node daemon and every client command, in one binary.

mod build_info;
mod cli;
mod client;
mod commands;
mod failure;
mod output;
mod top;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // Not a command for people: what the daemon starts itself as, to fork the first processes of
    // cells from. Before anything else, because each of them has a copy of what is there by then.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == "shim")
    {
        return match mainstay_cells::zygote::run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no failure; clap knows where each kind belongs.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
