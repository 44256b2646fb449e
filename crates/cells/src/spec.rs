//! Specifications of cells and executables, as requested and as stored in records.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::limits::Limits;
use crate::seccomp::Profile;

/// A cell as requested.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CellSpec {
    pub limits: Limits,
    /// Namespaces shared with the host.
    pub share: BTreeSet<Namespace>,
    /// Whether executables get a user namespace: root inside maps to an unprivileged UID.
    pub user_namespace: bool,
    /// Defaults to the last label of the cell's name.
    pub hostname: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Namespace {
    Network,
    Ipc,
    Uts,
    Pid,
    Mount,
    Cgroup,
}

/// An executable as requested.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExecutableSpec {
    /// The command line as requested; [`ExecutableSpec::words`] are its words.
    pub command: String,
    pub words: Vec<String>,
    pub description: String,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// `NAME=value`, in addition to the defaults or overriding them.
    pub environment: Vec<String>,
    pub working_directory: Option<String>,
    /// Names of capabilities in addition to the default set.
    pub keep_capabilities: Vec<String>,
    pub allow_new_privileges: bool,
    pub seccomp: Profile,
    /// Whether its standard input is a pipe that attachments write to, and not empty.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stdin: bool,
    /// The initial size of its terminal, if it runs on a pseudoterminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
    /// Limits of its own, within those of its cell.
    #[serde(skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// Sizes of its log that differ from the node's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_file_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_total_bytes: Option<u64>,
    /// Supplementary groups, where the engine does not confine its executables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<u32>,
}

impl ExecutableSpec {
    /// Returns whether a client can attach to it.
    pub fn is_attachable(&self) -> bool {
        self.stdin || self.terminal.is_some()
    }
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSpec {
    #[error("the command is missing")]
    NoCommand,
    #[error("invalid command {shown:?}: unterminated quote or trailing backslash")]
    Quoting { shown: String },
    #[error("{what} contains a NUL byte")]
    NulByte { what: &'static str },
    #[error("invalid environment variable {shown:?}; write NAME=value")]
    Variable { shown: String },
    #[error("invalid working directory {shown:?}; write an absolute path")]
    WorkingDirectory { shown: String },
    #[error("the command and its environment take {bytes} bytes; the maximum is {MAX_EXEC_BYTES}")]
    TooLarge { bytes: usize },
    #[error("invalid host name {shown:?}: use 1 to 63 letters, digits, `.` and `-`")]
    Hostname { shown: String },
    #[error(
        "a cell that shares the host's PID namespace must share its mount namespace too: /proc \
         belongs to both"
    )]
    PidWithoutMount,
    #[error(
        "a custom seccomp profile requires no_new_privs; request either the profile or new privileges"
    )]
    PrivilegesAndSeccomp,
    #[error("invalid UID or GID {id}")]
    Id { id: u32 },
}

/// Half of what the kernel accepts by default for argv and environment, pointers included.
const MAX_EXEC_BYTES: usize = 1 << 20;

impl CellSpec {
    /// Checks everything that the types do not.
    pub fn check(&self) -> Result<(), BadSpec> {
        if let Some(hostname) = &self.hostname {
            let may = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-');
            if !(1..=63).contains(&hostname.len()) || !hostname.bytes().all(may) {
                return Err(BadSpec::Hostname {
                    shown: shown(hostname),
                });
            }
        }
        let shares = |namespace| self.share.contains(&namespace);
        if shares(Namespace::Pid) && !shares(Namespace::Mount) {
            return Err(BadSpec::PidWithoutMount);
        }
        Ok(())
    }
}

impl ExecutableSpec {
    /// Splits a command into words as a POSIX shell does, without expansions.
    pub fn split(command: &str) -> Result<Vec<String>, BadSpec> {
        let words = shlex::split(command).ok_or_else(|| BadSpec::Quoting {
            shown: shown(command),
        })?;
        if words.is_empty() {
            return Err(BadSpec::NoCommand);
        }
        Ok(words)
    }

    /// Checks everything that the types do not.
    pub fn check(&self) -> Result<(), BadSpec> {
        if self.words.first().is_none_or(String::is_empty) {
            return Err(BadSpec::NoCommand);
        }
        for (what, mut texts) in [
            ("the command", self.words.iter()),
            ("the environment", self.environment.iter()),
        ] {
            if texts.any(|text| text.contains('\0')) {
                return Err(BadSpec::NulByte { what });
            }
        }
        for variable in &self.environment {
            if variable
                .split_once('=')
                .is_none_or(|(name, _)| name.is_empty())
            {
                return Err(BadSpec::Variable {
                    shown: shown(variable),
                });
            }
        }
        if let Some(directory) = &self.working_directory
            && (!directory.starts_with('/') || directory.contains('\0'))
        {
            return Err(BadSpec::WorkingDirectory {
                shown: shown(directory),
            });
        }
        if self.allow_new_privileges && matches!(self.seccomp, Profile::Custom(_)) {
            return Err(BadSpec::PrivilegesAndSeccomp);
        }
        for id in [self.uid, self.gid].into_iter().flatten() {
            // The kernel reads it as "no change".
            if id == u32::MAX {
                return Err(BadSpec::Id { id });
            }
        }
        let bytes = self
            .words
            .iter()
            .chain(&self.environment)
            .map(|text| text.len() + 9);
        let bytes: usize = bytes.sum();
        if bytes > MAX_EXEC_BYTES {
            return Err(BadSpec::TooLarge { bytes });
        }
        Ok(())
    }
}

/// Truncates a text for an error message.
pub(crate) fn shown(text: &str) -> String {
    const SHOWN_CHARS: usize = 80;
    text.chars().take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commands_are_split_as_by_a_shell() {
        let split = |text| ExecutableSpec::split(text).unwrap();
        assert_eq!(
            split("echo  'a b' c\\ d \"e\""),
            ["echo", "a b", "c d", "e"]
        );
        assert_eq!(split("sh -c 'echo $HOME; exit 7'")[2], "echo $HOME; exit 7");
        assert_eq!(ExecutableSpec::split(" \t"), Err(BadSpec::NoCommand));
        for torn in ["echo 'a", "echo \"a", "echo a\\"] {
            let error = ExecutableSpec::split(torn).unwrap_err();
            assert!(matches!(error, BadSpec::Quoting { .. }), "{torn}");
        }
    }

    #[test]
    fn an_invalid_executable_spec_is_refused() {
        let good = || ExecutableSpec {
            words: vec!["true".to_owned()],
            ..ExecutableSpec::default()
        };
        assert_eq!(good().check(), Ok(()));
        let bad: [fn(&mut ExecutableSpec); 8] = [
            |spec| spec.words.clear(),
            |spec| spec.words[0].clear(),
            |spec| spec.words.push("a\0b".to_owned()),
            |spec| spec.environment.push("nothing".to_owned()),
            |spec| spec.environment.push("=value".to_owned()),
            |spec| spec.working_directory = Some("tmp".to_owned()),
            |spec| spec.uid = Some(u32::MAX),
            |spec| spec.words.push("x".repeat(MAX_EXEC_BYTES)),
        ];
        for spoil in bad {
            let mut spec = good();
            spoil(&mut spec);
            let error = spec.check().unwrap_err();
            assert!(error.to_string().len() < 300);
        }
    }

    #[test]
    fn sharing_the_pid_namespace_requires_sharing_mounts() {
        let mut spec = CellSpec::default();
        spec.share.insert(Namespace::Pid);
        assert_eq!(spec.check(), Err(BadSpec::PidWithoutMount));
        spec.share.insert(Namespace::Mount);
        assert_eq!(spec.check(), Ok(()));
        spec.hostname = Some("a b".to_owned());
        assert!(spec.check().is_err());
    }

    proptest! {
        #[test]
        fn splitting_any_text_does_not_panic(text in ".{0,200}") {
            let _ = ExecutableSpec::split(&text);
        }
    }
}
