//! Every command line in README.md and docs/*.md is run: those of a document in order, against a
//! real node, or a fleet of three machines for `docs/fleet.md`.

mod commands;
mod machine;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mainstay_testkit::{Sweeper, TestNetwork, require};

use commands::{CommandLine, Treatment, command_lines, treatment};
use machine::Machine;

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap().to_owned()
}

fn documents() -> Vec<PathBuf> {
    let mut found = vec![root().join("README.md")];
    for entry in std::fs::read_dir(root().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The machines of a document by the name before the prompt; the first one has no name too.
struct Machines {
    by_name: BTreeMap<String, Machine>,
    first: String,
}

impl Machines {
    fn of(&mut self, line: &CommandLine) -> &mut Machine {
        let name = match self.by_name.contains_key(&line.prompt) {
            true => &line.prompt,
            // Somebody else at the first machine.
            false => &self.first,
        };
        self.by_name.get_mut(name).unwrap()
    }
}

/// Runs the command lines of a document.
fn run(document: &Path, machines: &mut Machines) -> Result<(), String> {
    let text = std::fs::read_to_string(document).unwrap();
    for line in command_lines(&text) {
        let told = |problem: String| format!("{}: {problem}\n  {}", line.number, line.command);
        match treatment(document, &line) {
            Treatment::Skip => {}
            Treatment::Service(action) => machines.of(&line).service(action),
            Treatment::Run => {
                let ran = machines.of(&line).run(&line.prompt, &line.command);
                line.judge(&ran).map_err(told)?;
            }
            Treatment::Follow => {
                let ran = machines
                    .of(&line)
                    .run_for_a_moment(&line.prompt, &line.command);
                if !matches!(ran.code, 0 | 124 | 143) {
                    return Err(told(format!("exit code {}: {}", ran.code, ran.output)));
                }
            }
            Treatment::Parse => {
                let ran = machines.of(&line).run(&line.prompt, &line.command);
                if matches!(ran.code, 2 | 127) {
                    return Err(told(format!("exit code {}: {}", ran.code, ran.output)));
                }
            }
        }
    }
    Ok(())
}

fn run_on_one_machine(document: &Path) -> Result<(), String> {
    let sweeper = Sweeper::start("e2e-documentation");
    let mut machines = one_machine(&sweeper);
    let machine = machines.by_name.get_mut("node").unwrap();
    machine.write_default_configuration();
    machine.prepare(document);
    machine.service("start");
    let outcome = run(document, &mut machines);
    drop(machines);
    outcome.map_err(|problem| format!("{}:{problem}", document.display()))
}

fn one_machine(sweeper: &Sweeper) -> Machines {
    let machine = Machine::alone(sweeper, "node");
    let by_name = BTreeMap::from([("node".to_owned(), machine)]);
    let first = "node".to_owned();
    Machines { by_name, first }
}

#[test]
fn every_command_line_of_the_documentation_works() {
    require!(Root, Network);
    let documents = documents();
    let of_one_node = documents
        .iter()
        .filter(|document| !document.ends_with("fleet.md"));
    // Most of the time is spent on commands that follow something for a moment.
    let failed: Vec<String> = std::thread::scope(|scope| {
        let running: Vec<_> = of_one_node
            .map(|document| scope.spawn(|| run_on_one_machine(document)))
            .collect();
        let outcomes = running.into_iter().map(|thread| thread.join());
        outcomes
            .filter_map(|outcome| outcome.unwrap_or_else(|_| Err("panicked".to_owned())).err())
            .collect()
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn three_empty_machines_become_a_fleet_as_documented() {
    require!(Root, Network);
    let sweeper = Sweeper::start("e2e-fleet");
    let network = TestNetwork::of_machines(3);
    let mut by_name = BTreeMap::new();
    for (index, name) in ["n1", "n2", "n3"].into_iter().enumerate() {
        let machine = Machine::on(&sweeper, network.machine(index), name, index + 1);
        by_name.insert(name.to_owned(), machine);
    }
    let holders: Vec<(String, u32)> = by_name
        .iter()
        .map(|(name, machine)| (name.clone(), machine.holder()))
        .collect();
    for machine in by_name.values() {
        machine.install_scp(&holders);
    }
    let first = "n1".to_owned();
    let mut machines = Machines { by_name, first };
    let outcome = run(&root().join("docs/fleet.md"), &mut machines);
    assert!(outcome.is_ok(), "docs/fleet.md:{}", outcome.unwrap_err());
}

#[test]
fn every_exception_is_still_needed() {
    let mut lines = Vec::new();
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        let name = document.file_name().unwrap().to_str().unwrap().to_owned();
        lines.extend(
            command_lines(&text)
                .into_iter()
                .map(|line| (name.clone(), line)),
        );
    }
    for (document, start, reason) in commands::EXCEPTIONS {
        let used = lines
            .iter()
            .any(|(name, line)| name == document && line.command.starts_with(start));
        assert!(used, "{document} has no command line {start:?} ({reason})");
    }
}
