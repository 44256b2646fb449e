//! From the definition of a service to the executable that runs it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use mainstay_cells::{
    BadSpec, CellName, CellSpec, ExecutableName, ExecutableSpec, Namespace, digest,
};

use crate::accounts::{self, AccountError};
use crate::{Definition, SHARED_CELLS, ServiceName};

/// Larger files of environment variables are refused.
const MAX_ENVIRONMENT_FILE_BYTES: u64 = 1 << 20;
const ALL_NAMESPACES: [Namespace; 6] = [
    Namespace::Network,
    Namespace::Ipc,
    Namespace::Uts,
    Namespace::Pid,
    Namespace::Mount,
    Namespace::Cgroup,
];

/// The cell and the executable of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    pub cell: CellName,
    pub executable: ExecutableName,
    /// The executable that runs its health checks.
    pub probe: ExecutableName,
}

#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error("cannot read environment file {}", path.display())]
    EnvironmentFile { path: PathBuf, source: io::Error },
    #[error("environment file {} line {line} is not NAME=value", path.display())]
    EnvironmentLine { path: PathBuf, line: usize },
}

/// A definition that no cell can run.
#[derive(Debug, thiserror::Error)]
#[error("service {service}: {reason}")]
pub struct BadDefinition {
    service: ServiceName,
    reason: BadSpec,
}

/// Checks what is known of a definition before it is started.
pub fn check(service: &ServiceName, definition: &Definition) -> Result<(), BadDefinition> {
    let spec = ExecutableSpec {
        environment: definition.environment.clone(),
        ..executable_spec(definition)
    };
    let checked = spec.check().and_then(|()| cell_spec(definition).check());
    checked.map_err(|reason| BadDefinition {
        service: service.clone(),
        reason,
    })
}

impl Placement {
    /// Services with namespaces of their own have a cell of their own; all others share one, and
    /// its shim.
    pub fn of(service: &ServiceName, definition: &Definition) -> Option<Self> {
        let cell = match definition.isolate.is_empty() {
            true => SHARED_CELLS.get(share_of(service))?,
            false => service.as_str(),
        };
        Some(Self {
            cell: cell.parse().ok()?,
            executable: service.as_str().parse().ok()?,
            probe: probe_name(service)?,
        })
    }

    /// The place of its cell among the shared ones.
    pub fn shared(&self) -> Option<usize> {
        place_of(&self.cell)
    }
}

/// The place of a cell among the shared ones.
pub fn place_of(cell: &CellName) -> Option<usize> {
    SHARED_CELLS
        .iter()
        .position(|shared| *shared == cell.as_str())
}

/// The shared cell of a service, by its name: the same for every daemon.
fn share_of(service: &ServiceName) -> usize {
    let digest = digest(service.as_str().as_bytes());
    // The low bits of short names differ least.
    let share = (digest ^ (digest >> 32)) % SHARED_CELLS.len() as u64;
    usize::try_from(share).unwrap_or(0)
}

/// No service has a dot in its name.
fn probe_name(service: &ServiceName) -> Option<ExecutableName> {
    let readable = format!("health.{service}").parse();
    let digest = || format!("health.{:016x}", digest(service.as_str().as_bytes())).parse();
    readable.or_else(|_| digest()).ok()
}

pub fn cell_spec(definition: &Definition) -> CellSpec {
    let share = ALL_NAMESPACES.into_iter();
    let share: BTreeSet<Namespace> = share
        .filter(|namespace| !definition.isolate.contains(namespace))
        .collect();
    CellSpec {
        share,
        ..CellSpec::default()
    }
}

/// Everything but what is read from files.
fn executable_spec(definition: &Definition) -> ExecutableSpec {
    let words = definition.command.iter().map(String::as_str);
    ExecutableSpec {
        command: shlex::try_join(words).unwrap_or_default(),
        words: definition.command.clone(),
        description: definition.description.clone(),
        working_directory: definition.working_directory.clone(),
        limits: definition.limits.clone(),
        log_file_bytes: definition.log_file_bytes,
        log_total_bytes: definition.log_total_bytes,
        ..ExecutableSpec::default()
    }
}

/// The executable of a service. Blocks on files.
pub fn resolve(definition: &Definition) -> Result<ExecutableSpec, ProgramError> {
    let account = accounts::find(definition.user.as_deref(), definition.group.as_deref())?;
    let mut environment = Vec::new();
    // As an init system sets them for a service with a user.
    if definition.user.is_some() {
        for (variable, value) in [
            ("HOME", &account.home),
            ("USER", &account.name),
            ("LOGNAME", &account.name),
        ] {
            if let Some(value) = value {
                set(&mut environment, format!("{variable}={value}"));
            }
        }
    }
    for path in &definition.environment_files {
        for variable in read_environment(path)? {
            set(&mut environment, variable);
        }
    }
    for variable in &definition.environment {
        set(&mut environment, variable.clone());
    }
    Ok(ExecutableSpec {
        environment,
        uid: Some(account.uid),
        gid: Some(account.gid),
        groups: account.groups,
        ..executable_spec(definition)
    })
}

/// The executable of a health check: the command in the place of the service's own.
pub fn probe_spec(spec: ExecutableSpec, command: &[String]) -> ExecutableSpec {
    const LOG_BYTES: u64 = 64 << 10;
    ExecutableSpec {
        command: shlex::try_join(command.iter().map(String::as_str)).unwrap_or_default(),
        words: command.to_vec(),
        description: String::new(),
        limits: mainstay_cells::Limits::default(),
        log_file_bytes: Some(LOG_BYTES),
        log_total_bytes: Some(LOG_BYTES),
        ..spec
    }
}

/// Sets a variable, in the place of an earlier one of that name.
fn set(environment: &mut Vec<String>, variable: String) {
    let name = |variable: &str| variable.split('=').next().unwrap_or_default().to_owned();
    let new = name(&variable);
    environment.retain(|earlier| name(earlier) != new);
    environment.push(variable);
}

fn read_environment(path: &Path) -> Result<Vec<String>, ProgramError> {
    let unreadable = |source| ProgramError::EnvironmentFile {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_ENVIRONMENT_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    if text.len() as u64 > MAX_ENVIRONMENT_FILE_BYTES {
        return Err(unreadable(io::ErrorKind::FileTooLarge.into()));
    }
    parse_environment(&text).map_err(|line| ProgramError::EnvironmentLine {
        path: path.to_owned(),
        line,
    })
}

/// Parses `NAME=value` lines with optional quotes around the value; fails with the wrong line.
fn parse_environment(text: &str) -> Result<Vec<String>, usize> {
    let mut variables = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').ok_or(index + 1)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(is_name) || value.contains('\0') {
            return Err(index + 1);
        }
        let quoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
        let value = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
        variables.push(format!("{name}={value}"));
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_files_have_a_variable_a_line() {
        let text = "# comment\n\nA=1\nB=\"two words\"\nC='x'\nD=a=b\nE=\n";
        assert_eq!(
            parse_environment(text).unwrap(),
            ["A=1", "B=two words", "C=x", "D=a=b", "E="]
        );
        for (text, line) in [("A=1\nB", 2), ("=x", 1), ("a b=c", 1), ("\n\nA=\0", 3)] {
            assert_eq!(parse_environment(text), Err(line), "{text:?}");
        }
    }

    #[test]
    fn later_variables_take_the_place_of_earlier_ones() {
        let mut environment = vec!["A=1".to_owned(), "AB=2".to_owned()];
        set(&mut environment, "A=3".to_owned());
        assert_eq!(environment, ["AB=2", "A=3"]);
    }

    #[test]
    fn services_share_a_cell_unless_they_have_namespaces() {
        let name: ServiceName = "web".parse().unwrap();
        let mut definition = Definition::new(vec!["true".to_owned()]);
        let shared = Placement::of(&name, &definition).unwrap();
        assert!(shared.shared().is_some());
        definition.isolate.insert(Namespace::Network);
        let own = Placement::of(&name, &definition).unwrap();
        assert_eq!((own.cell.as_str(), own.shared()), ("web", None));
        let longest: ServiceName = "x".repeat(63).parse().unwrap();
        assert!(Placement::of(&longest, &definition).is_some());
    }
}
