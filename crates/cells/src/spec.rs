//! What a cell and an executable are asked to be, as they are kept on disk.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::limits::Limits;
use crate::seccomp::Profile;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CellSpec {
    pub limits: Limits,
    /// Namespaces that are not the cell's own but the host's.
    pub share: BTreeSet<Namespace>,
    /// Users inside are others outside: root inside is nobody there.
    pub user_namespace: bool,
    /// Instead of the last label of its name.
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

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExecutableSpec {
    /// As it was asked for; [`ExecutableSpec::words`] are made of it.
    pub command: String,
    pub words: Vec<String>,
    pub description: String,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// `NAME=value`, beside or instead of the few that are always there.
    pub environment: Vec<String>,
    pub working_directory: Option<String>,
    /// Names of capabilities beyond those that are kept anyway.
    pub keep_capabilities: Vec<String>,
    pub allow_new_privileges: bool,
    pub seccomp: Profile,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSpec {
    #[error("no command is given")]
    NoCommand,
    #[error("{shown:?} is not a command: a quote or a backslash at its end lacks its other half")]
    Quoting { shown: String },
    #[error("{what} has a zero byte in it")]
    ZeroByte { what: &'static str },
    #[error("{shown:?} is not an environment variable; write NAME=value")]
    Variable { shown: String },
    #[error("{shown:?} is not a working directory; write an absolute path")]
    WorkingDirectory { shown: String },
    #[error("the command and its environment have {bytes} bytes; {MOST_BYTES} are the most")]
    TooLarge { bytes: usize },
    #[error("{shown:?} is not a host name: 1 to 63 letters, digits, `.` and `-`")]
    Hostname { shown: String },
    #[error(
        "a cell that shares the host's processes has to share its mounts too: they belong \
         together through /proc"
    )]
    PidWithoutMount,
    #[error("a profile of system calls excludes new privileges; ask for one of them")]
    PrivilegesAndSeccomp,
    #[error("{id} is not the number of a user or group")]
    Id { id: u32 },
}

/// What the kernel takes for a new program is 2 MiB by default, pointers included.
const MOST_BYTES: usize = 1 << 20;

impl CellSpec {
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
    /// A command in the words of a POSIX shell, without the shell.
    pub fn split(command: &str) -> Result<Vec<String>, BadSpec> {
        let words = shlex::split(command).ok_or_else(|| BadSpec::Quoting {
            shown: shown(command),
        })?;
        if words.is_empty() {
            return Err(BadSpec::NoCommand);
        }
        Ok(words)
    }

    pub fn check(&self) -> Result<(), BadSpec> {
        if self.words.first().is_none_or(String::is_empty) {
            return Err(BadSpec::NoCommand);
        }
        for (what, mut texts) in [
            ("the command", self.words.iter()),
            ("the environment", self.environment.iter()),
        ] {
            if texts.any(|text| text.contains('\0')) {
                return Err(BadSpec::ZeroByte { what });
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
        if self.allow_new_privileges && self.seccomp != Profile::None {
            return Err(BadSpec::PrivilegesAndSeccomp);
        }
        for id in [self.uid, self.gid].into_iter().flatten() {
            // The kernel takes it for "leave as it is".
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
        if bytes > MOST_BYTES {
            return Err(BadSpec::TooLarge { bytes });
        }
        Ok(())
    }
}

/// As much of a text as belongs into a message.
pub(crate) fn shown(text: &str) -> String {
    const SHOWN_CHARS: usize = 80;
    text.chars().take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commands_are_split_as_a_shell_would() {
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
    fn what_the_kernel_would_misread_is_refused() {
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
            |spec| spec.words.push("x".repeat(MOST_BYTES)),
        ];
        for spoil in bad {
            let mut spec = good();
            spoil(&mut spec);
            let error = spec.check().unwrap_err();
            assert!(error.to_string().len() < 300);
        }
    }

    #[test]
    fn namespaces_that_belong_together_are_shared_together() {
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
        fn no_command_makes_it_panic(text in ".{0,200}") {
            let _ = ExecutableSpec::split(&text);
        }
    }
}
