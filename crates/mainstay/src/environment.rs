//! The environment variables that the client commands read.

use std::path::PathBuf;

pub const CONFIG: &str = "MAINSTAY_CONFIG";
pub const CONTEXT: &str = "MAINSTAY_CONTEXT";
pub const STATE: &str = "MAINSTAY_STATE";
/// Shell for which a completion script asks; not for people.
pub const COMPLETE: &str = "MAINSTAY_COMPLETE";

const VISUAL: &str = "VISUAL";
const EDITOR: &str = "EDITOR";

/// Every variable that the client commands read; `docs/cli.md` describes them.
#[cfg(test)]
pub const VARIABLES: [&str; 12] = [
    COMPLETE,
    VISUAL,
    EDITOR,
    CONFIG,
    CONTEXT,
    STATE,
    "HOME",
    "NO_COLOR",
    "PATH",
    "TERM",
    "XDG_CONFIG_HOME",
    // Read by the daemon's configuration, for the default state directory.
    "XDG_STATE_HOME",
];

/// Returns the state directory of a node on this machine: `$MAINSTAY_STATE`, else the default of
/// this user.
pub fn local_state() -> Option<PathBuf> {
    match std::env::var_os(STATE) {
        Some(state) => Some(PathBuf::from(state)),
        None => mainstay_daemon::config::default_state().ok(),
    }
}

/// Returns the command line of the user's editor.
pub fn editor() -> String {
    let set = |name| std::env::var(name).ok().filter(|it| !it.trim().is_empty());
    (set(VISUAL).or_else(|| set(EDITOR))).unwrap_or_else(|| "vi".to_owned())
}
