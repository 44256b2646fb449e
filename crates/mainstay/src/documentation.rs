//! Tests that compare `docs/cli.md` and the help texts with the code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};

use crate::cli::Cli;
use crate::environment::VARIABLES;
use crate::failure::Exit;

const MANUAL: &str = include_str!("../../../docs/cli.md");

/// Returns the first two columns of the table below a heading of `docs/cli.md`.
fn documented(heading: &str) -> Vec<(&'static str, &'static str)> {
    let section = MANUAL
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("docs/cli.md has no section {heading:?}"))
        .1;
    let section = section.split("\n## ").next().unwrap_or(section);
    section
        .lines()
        .filter(|line| line.starts_with('|'))
        // The header and the rule below it.
        .skip(2)
        .filter_map(|line| {
            let mut columns = line.trim_matches('|').split(" | ").map(str::trim);
            Some((columns.next()?.trim_matches('`'), columns.next()?))
        })
        .collect()
}

/// Returns every command of the tree with its full name.
fn commands() -> Vec<(String, Command)> {
    let mut root = Cli::command().term_width(100);
    root.build();
    let mut found = Vec::new();
    let mut open = vec![("mainstay".to_owned(), root)];
    while let Some((name, command)) = open.pop() {
        for child in command.get_subcommands() {
            if child.get_name() != "help" {
                let child_name = format!("{name}-{}", child.get_name());
                open.push((child_name, child.clone().term_width(100)));
            }
        }
        found.push((name, command));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

#[test]
fn every_help_text_matches_its_snapshot() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots/help");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let _bound = settings.bind_to_scope();
    for (name, command) in commands() {
        // Values of variables in the environment of the test would be part of the help.
        let mut command = command.mut_args(|arg| arg.hide_env_values(true));
        let help = command.render_long_help().to_string();
        insta::assert_snapshot!(name, help);
    }
}

#[test]
fn every_command_and_argument_has_help_and_every_command_has_examples() {
    for (name, command) in commands() {
        assert!(command.get_about().is_some(), "{name} has no description");
        let after = command.get_after_help().map(ToString::to_string);
        assert!(
            after.is_some_and(|after| after.contains("Examples:")),
            "{name} has no examples"
        );
        for arg in command.get_arguments() {
            let help = arg.get_help().or(arg.get_long_help());
            assert!(help.is_some(), "{name}: {} has no help", arg.get_id());
        }
    }
}

#[test]
fn exit_codes_are_documented() {
    let registered: Vec<(String, &str)> = Exit::ALL
        .iter()
        .map(|exit| (exit.code().to_string(), exit.summary()))
        .collect();
    let documented = documented("Exit codes");
    let codes = |(code, _): &(&str, &str)| (*code).to_owned();
    assert_eq!(
        documented.iter().map(codes).collect::<Vec<_>>(),
        registered
            .iter()
            .map(|(code, _)| code.clone())
            .collect::<Vec<_>>()
    );
    for ((code, meaning), (_, summary)) in documented.iter().zip(&registered) {
        assert!(
            meaning.starts_with(summary),
            "exit code {code} is documented as {meaning:?}, not {summary:?}"
        );
    }
}

#[test]
fn exit_codes_are_unique() {
    let codes: BTreeSet<u8> = Exit::ALL.iter().map(|exit| exit.code()).collect();
    assert_eq!(codes.len(), Exit::ALL.len());
}

#[test]
fn environment_variables_are_documented() {
    let registered: BTreeSet<&str> = VARIABLES.into();
    let documented: BTreeSet<&str> = documented("Environment")
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(documented, registered);
}

#[test]
fn environment_variables_in_the_code_are_registered() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut read = BTreeSet::new();
    for name in ["client", "mainstay", "top"] {
        for file in sources(&crates.join(name).join("src")) {
            let text = std::fs::read_to_string(&file).unwrap();
            for (start, _) in text.match_indices("env::var") {
                let call = text[start..].split_once('(').unwrap().1;
                // `vars`, or a name that is not a literal: only the registry itself has those.
                let Some((variable, _)) = call.strip_prefix('"').and_then(|c| c.split_once('"'))
                else {
                    assert!(
                        ["environment.rs", "documentation.rs", "completion/line.rs"]
                            .iter()
                            .any(|registered| file.ends_with(registered)),
                        "{} reads a variable whose name is not a literal",
                        file.display()
                    );
                    continue;
                };
                read.insert(variable.to_owned());
            }
        }
    }
    for (name, command) in commands() {
        for variable in command.get_arguments().filter_map(clap::Arg::get_env) {
            assert!(
                VARIABLES.contains(&variable.to_str().unwrap()),
                "{name} reads {variable:?}, which is not registered"
            );
        }
    }
    for variable in &read {
        assert!(
            VARIABLES.contains(&variable.as_str()),
            "{variable} is not registered"
        );
    }
    assert!(read.contains("NO_COLOR"), "the scan finds {read:?}");
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
