//! Log files of containers.

use std::path::PathBuf;

use crate::error::{ContainerError, NoLog};

/// The instance of a restarted container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instance {
    /// The one that runs, else the newest.
    Current,
    /// The one before that.
    Previous,
}

/// A file that a runtime writes a container's output to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    pub path: PathBuf,
    /// True if each line begins with its time.
    pub timed: bool,
}

/// Returns the log of a task whose standard output is `stdout`: a file, or the URI of one.
pub(crate) fn of_output(id: &str, stdout: &str) -> Result<LogFile, ContainerError> {
    let none = |why| {
        Err(ContainerError::NoLog {
            id: id.to_owned(),
            why,
        })
    };
    let path = match stdout.split_once("://") {
        Some(("file", rest)) => PathBuf::from(unescaped(rest)),
        Some(("fifo", _)) => return none(NoLog::Piped),
        Some(_) => return none(NoLog::LoggingProgram),
        None if stdout.is_empty() => return none(NoLog::Discarded),
        None => PathBuf::from(stdout),
    };
    if !path.is_absolute() {
        return none(NoLog::Discarded);
    }
    Ok(LogFile { path, timed: false })
}

/// Returns the path of a URI without query and with percent escapes undone.
fn unescaped(rest: &str) -> String {
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    let mut bytes = Vec::with_capacity(path.len());
    let mut left = path.as_bytes();
    while let [first, after @ ..] = left {
        let escaped = (*first == b'%')
            .then(|| after.get(..2))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                left = &after[2..];
            }
            None => {
                bytes.push(*first);
                left = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_a_file_is_a_log() {
        let path = |stdout: &str| of_output("x", stdout).unwrap().path;
        assert_eq!(
            path("file:///var/log/a%20b%2.log?x=1"),
            PathBuf::from("/var/log/a b%2.log")
        );
        assert_eq!(path("/var/log/a.log"), PathBuf::from("/var/log/a.log"));
        for (stdout, words) in [
            ("", "thrown away"),
            ("relative", "thrown away"),
            ("fifo:///run/x", "program that started it"),
            ("binary:///usr/bin/logger?id=1", "logging program"),
        ] {
            let error = of_output("x", stdout).unwrap_err().to_string();
            assert!(error.starts_with("container \"x\" has no log"), "{error}");
            assert!(error.contains(words), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_output_is_understood_or_refused(stdout in ".*") {
            let _ = of_output("x", &stdout);
        }
    }
}
