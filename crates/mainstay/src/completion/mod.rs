//! Completion of the command line in a shell, values of the node included.
//!
//! The script of `mainstay completion SHELL` runs this binary with [`environment::COMPLETE`] set for
//! every completion. Whatever goes wrong, the answer is that there is nothing to complete: a shell
//! waits for it, and must see neither an error nor a delay.

mod bash;
mod line;
mod values;

use std::process::ExitCode;

use clap::{Arg, Command, CommandFactory};
use clap_complete::CompleteEnv;
use clap_complete::engine::ArgValueCompleter;
use clap_complete::env::Shells;

use crate::cli::Cli;
use crate::environment;
use crate::failure::{Exit, Failure, Outcome};

/// Answers a completion; `None` if none was asked for.
pub fn answer() -> Option<ExitCode> {
    let completed = CompleteEnv::with_factory(command)
        .var(environment::COMPLETE)
        .completer("mainstay")
        .try_complete(std::env::args_os(), std::env::current_dir().ok().as_deref());
    match completed {
        Ok(false) => None,
        Ok(true) => Some(ExitCode::SUCCESS),
        Err(_) => Some(ExitCode::FAILURE),
    }
}

/// Returns the script that registers the completion in a shell.
pub fn script(shell: &str) -> Outcome<String> {
    if shell == "bash" {
        return Ok(bash::SCRIPT.to_owned());
    }
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let completer = shells
        .completer(shell)
        .ok_or_else(|| Failure::usage(format!("no completion for shell {shell:?}")))?;
    completer
        .write_registration(
            environment::COMPLETE,
            "mainstay",
            "mainstay",
            "mainstay",
            &mut script,
        )
        .map_err(|error| Failure::caused(Exit::Failed, &error))?;
    if shell == "zsh" {
        script.extend_from_slice(ZSH_AUTOLOAD.as_bytes());
    }
    Ok(String::from_utf8_lossy(&script).into_owned())
}

/// Completes at once when zsh loads the script from a file because of a completion.
const ZSH_AUTOLOAD: &str = r#"
if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then
    _clap_dynamic_completer_mainstay "$@"
fi
"#;

/// Returns the command line with the completers of its values.
fn command() -> Command {
    with_hidden_aliases(with_completers(Cli::command(), &[]))
}

/// Offers an alias only where no name fits. Of a name and its visible aliases the engine offers only
/// the first in the alphabet.
fn with_hidden_aliases(command: Command) -> Command {
    command.mut_subcommands(|below| {
        let aliases: Vec<&'static str> = below
            .get_visible_aliases()
            // The process ends with the completion.
            .map(|alias| &*alias.to_owned().leak())
            .collect();
        let below = match aliases.is_empty() {
            true => below,
            false => below.visible_alias(None).aliases(aliases),
        };
        with_hidden_aliases(below)
    })
}

fn with_completers(command: Command, path: &[String]) -> Command {
    let command = command.mut_args(|arg| with_completer(arg, path));
    command.mut_subcommands(|below| {
        let mut path = path.to_vec();
        path.push(below.get_name().to_owned());
        with_completers(below, &path)
    })
}

fn with_completer(arg: Arg, path: &[String]) -> Arg {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let completer = match (path.as_slice(), arg.get_id().as_str()) {
        (_, "nodes") => ArgValueCompleter::new(values::nodes),
        (_, "endpoints") => ArgValueCompleter::new(values::endpoints),
        (_, "context") | (["config", "use" | "info" | "remove"], "name") => {
            ArgValueCompleter::new(values::contexts)
        }
        (["logs"], "id") => ArgValueCompleter::new(values::logs),
        (["restart"], "id") => ArgValueCompleter::new(values::containers),
        (["service"], "id") => ArgValueCompleter::new(values::services),
        (["logs" | "containers" | "stats" | "restart"], "namespace") => {
            ArgValueCompleter::new(values::namespaces)
        }
        (["cell", _], "cell" | "cells") | (["run"], "cell") => {
            ArgValueCompleter::new(values::cells)
        }
        (["cell", "start" | "stop" | "logs"], "name") => {
            ArgValueCompleter::new(values::executables)
        }
        (["ls" | "cat"], "path") | (["du"], "paths") | (["cp"], "source") => {
            ArgValueCompleter::new(values::paths)
        }
        _ => return arg,
    };
    arg.add(completer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Renamed arguments would lose their completer without a word.
    #[test]
    fn every_value_of_a_node_has_its_completer() {
        let command = command();
        for (path, id) in [
            (&[][..], "nodes"),
            (&[], "endpoints"),
            (&[], "context"),
            (&["config", "use"], "name"),
            (&["config", "info"], "name"),
            (&["config", "remove"], "name"),
            (&["logs"], "id"),
            (&["logs"], "namespace"),
            (&["restart"], "id"),
            (&["service"], "id"),
            (&["cell", "list"], "cell"),
            (&["cell", "free"], "cells"),
            (&["cell", "stats"], "cell"),
            (&["cell", "start"], "name"),
            (&["cell", "stop"], "name"),
            (&["cell", "logs"], "name"),
            (&["run"], "cell"),
            (&["ls"], "path"),
            (&["cat"], "path"),
            (&["du"], "paths"),
            (&["cp"], "source"),
        ] {
            let mut found = &command;
            for name in path {
                found = found.find_subcommand(name).unwrap();
            }
            let arg = found.get_arguments().find(|arg| arg.get_id() == id);
            let completer = arg.and_then(|arg| arg.get::<ArgValueCompleter>());
            assert!(completer.is_some(), "{path:?} {id}");
        }
    }
}
