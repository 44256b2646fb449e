//! The reasons for which a configuration is not applied.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use mainstay_lifecycle::StartError;

use crate::config::{ConfigError, Problem};

#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("the configuration is empty; for a node of defaults, send a comment")]
    Empty,
    #[error("the configuration has {bytes} bytes; the maximum is {max_bytes}")]
    TooLarge { bytes: usize, max_bytes: usize },
    #[error("the configuration is not text: byte {at} is not valid UTF-8")]
    NotText { at: usize },
    #[error("the configuration is not valid: {}", list(.problems))]
    Invalid { problems: Vec<Problem> },
    #[error("the configuration cannot be used")]
    Unusable { source: ConfigError },
    #[error(
        "a trial of {} is out of range; the timeout is between 1s and {}",
        humantime::format_duration(*.timeout), humantime::format_duration(*.max)
    )]
    TrialTimeout { timeout: Duration, max: Duration },
    #[error(
        "a timeout for a trial has no effect without the mode TRY; omit it or choose that mode"
    )]
    TimeoutWithoutTrial,
    #[error("another change of the configuration is in progress; try again when it is done")]
    Busy,
    #[error(
        "{} changed since it was read; read it again and repeat the change",
        path.display()
    )]
    FileChanged { path: PathBuf },
    #[error(
        "a change of {} takes effect on restart only; nothing was changed. The mode AUTO applies \
         the other keys, STAGED leaves all to the next start",
        keys.join(", ")
    )]
    NeedsRestart { keys: Vec<&'static str> },
    #[error("the configuration is written for the next start, but the node cannot be rebooted")]
    NotRebooted(#[from] StartError),
    #[error("cannot read configuration file {}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "configuration file {} is not a regular file; it cannot be replaced",
        path.display()
    )]
    NotAFile { path: PathBuf },
    #[error("cannot write configuration file {}{}", path.display(), hint(source))]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("cannot keep the previous configuration in {}", path.display())]
    NotKept { path: PathBuf, source: io::Error },
    #[error("applying the configuration failed; the node's log says why")]
    Panicked,
}

/// The message of a status travels in a header, whose size clients limit.
const MAX_LIST_BYTES: usize = 4096;

fn list(problems: &[Problem]) -> String {
    let mut list = String::new();
    for (number, problem) in problems.iter().enumerate() {
        let problem = problem.to_string();
        if number > 0 && list.len() + problem.len() > MAX_LIST_BYTES {
            list.push_str(&format!("; and {} more", problems.len() - number));
            break;
        }
        if number > 0 {
            list.push_str("; ");
        }
        list.push_str(&problem);
    }
    list
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "; create its directory first, or start the daemon with --config"
        }
        io::ErrorKind::ReadOnlyFilesystem => "; it is on a read-only file system",
        io::ErrorKind::PermissionDenied => "; the daemon's user may not write its directory",
        io::ErrorKind::StorageFull => "; make room on its file system first",
        _ => "",
    }
}
