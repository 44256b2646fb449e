//! Command lines of a document, and the treatment of each.

use std::path::Path;

use super::machine::Ran;

/// A command line in a `console` block.
#[derive(Debug)]
pub struct CommandLine {
    /// Line in the document.
    pub number: usize,
    /// The word before the prompt: a user or a machine; empty for none.
    pub prompt: String,
    pub command: String,
    /// The output that follows.
    pub output: Vec<String>,
}

impl CommandLine {
    /// Compares a run with the document: it fails if the document shows an error, and prints the
    /// exit code if the document prints it.
    pub fn judge(&self, ran: &Ran) -> Result<(), String> {
        if self.command.ends_with("; echo $?") {
            let expected = self.output.last().map(String::as_str);
            return match ran.output.lines().last() == expected {
                true => Ok(()),
                false => Err(format!(
                    "exit code {expected:?} is documented: {}",
                    ran.output
                )),
            };
        }
        let fails = self.output.iter().any(|line| line.starts_with("error:"));
        match (fails, ran.code) {
            (false, 0) => Ok(()),
            (true, 1..=125) => Ok(()),
            (_, code) => Err(format!("exit code {code}: {}", ran.output)),
        }
    }
}

/// Returns the command lines of a document in order.
pub fn command_lines(text: &str) -> Vec<CommandLine> {
    let mut found: Vec<CommandLine> = Vec::new();
    let mut inside = false;
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        if line.starts_with("```") {
            inside = line == "```console";
            continue;
        }
        if !inside {
            continue;
        }
        let Some((prompt, command)) = prompt_and_command(line) else {
            if let Some(last) = found.last_mut() {
                last.output.push(line.to_owned());
            }
            continue;
        };
        let mut command = command.to_owned();
        while command.ends_with('\\') {
            let (_, next) = lines.next().expect("a continued line");
            command = format!("{command}\n{next}");
        }
        if command.contains("<<'EOF'") {
            for (_, next) in lines.by_ref() {
                command = format!("{command}\n{next}");
                if next == "EOF" {
                    break;
                }
            }
        }
        found.push(CommandLine {
            number: index + 1,
            prompt: prompt.to_owned(),
            command,
            output: Vec::new(),
        });
    }
    found
}

/// Splits `alice$ mainstay version` and `# mainstay version`.
fn prompt_and_command(line: &str) -> Option<(&str, &str)> {
    let (prompt, command) = line.split_once(' ')?;
    let name = prompt.strip_suffix(['#', '$'])?;
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric());
    is_name.then_some((name, command.trim()))
}

/// Treatment of a command line by the test.
#[derive(Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Run to its end.
    Run,
    /// Run for a moment, because it only ends when it is interrupted.
    Follow,
    /// Run, but only an error of the command line itself counts.
    Parse,
    /// Start or stop of the daemon, which the test does as systemd would.
    Service(&'static str),
    Skip,
}

/// Command lines that cannot succeed here, by document and beginning, with the reason. Those of
/// `mainstay` are run all the same and must be valid.
pub const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("README.md", "make ", "builds for minutes"),
    ("operations.md", "make ", "installs on this machine"),
    (
        "operations.md",
        "systemctl enable",
        "the node of this test runs already",
    ),
    (
        "operations.md",
        "mainstay serve",
        "the state directory is in use",
    ),
    ("aer.md", "aer ", "a client of another project"),
    ("api.md", "grpcurl ", "run with real files in README.md"),
    ("cli.md", "mainstay cat '/srv/caf", "an example of a name"),
    (
        "containers.md",
        "mainstay containers",
        "no container runtime",
    ),
    ("containers.md", "mainstay stats", "no container runtime"),
    ("containers.md", "mainstay restart", "no container runtime"),
    ("containers.md", "mainstay logs", "no container runtime"),
    (
        "logs-and-events.md",
        "mainstay events -f --after",
        "an event of another node",
    ),
    (
        "upgrade.md",
        "mainstay upgrade ",
        "the image of another version",
    ),
    (
        "upgrade.md",
        "mainstay rollback",
        "the node was never upgraded",
    ),
];

pub fn treatment(document: &Path, line: &CommandLine) -> Treatment {
    let command = line.command.as_str();
    let is_exception = |(name, start, _): &&(&str, &str, &str)| {
        document.ends_with(name) && command.starts_with(start)
    };
    if EXCEPTIONS.iter().find(is_exception).is_some() {
        return match command.starts_with("mainstay ") {
            true => Treatment::Parse,
            false => Treatment::Skip,
        };
    }
    match command {
        "systemctl enable --now mainstay" => return Treatment::Service("start"),
        "systemctl stop mainstay" => return Treatment::Service("stop"),
        _ => {}
    }
    let mut words = command.split_ascii_whitespace();
    let fails = line.output.iter().any(|line| line.starts_with("error:"));
    let endless = words
        .clone()
        .any(|word| word == "-f" || word.starts_with("--watch"))
        || command.starts_with("mainstay top") && !command.contains("--once")
        || command.starts_with("mainstay serve") && !fails;
    match words.next() == Some("mainstay") && endless {
        true => Treatment::Follow,
        false => Treatment::Run,
    }
}

#[test]
fn command_lines_are_found_with_their_output() {
    let text = "x\n```console\n# a b \\\n    c\nout\nalice$ d; echo $?\n7\n$ cat <<'EOF'\nz\nEOF\n```\n\
                ```toml\n# no command\n```\n";
    let lines = command_lines(text);
    let commands: Vec<&str> = lines.iter().map(|line| line.command.as_str()).collect();
    assert_eq!(
        commands,
        ["a b \\\n    c", "d; echo $?", "cat <<'EOF'\nz\nEOF"]
    );
    assert_eq!(
        (lines[1].prompt.as_str(), &*lines[1].output),
        ("alice", &["7".to_owned()][..])
    );
    assert_eq!(
        (lines[0].number, &*lines[0].output),
        (3, &["out".to_owned()][..])
    );
}
