//! The command line that is completed, as far as it is typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, CommandFactory};
use mainstay_client::Options;

use crate::cli::Cli;
use crate::environment;

/// An unfinished command line.
pub struct Line {
    matches: ArgMatches,
}

impl Line {
    /// Parses the words after `--` in the arguments of this process, where shells put them.
    pub fn of_this_process() -> Option<Self> {
        Self::parse(std::env::args_os().skip_while(|word| word != "--").skip(1))
    }

    fn parse(words: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let command = Cli::command().ignore_errors(true);
        let mut matches = command.try_get_matches_from(words).ok()?;
        while let Some((_, below)) = matches.remove_subcommand() {
            matches = below;
        }
        Some(Self { matches })
    }

    /// Returns the connection options. An unfinished line has no defaults, not even those of the
    /// environment.
    pub fn options(&self, timeout: Duration) -> Options {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let file = self.matches.try_get_one::<PathBuf>("client_config");
        let file = file.ok().flatten().cloned();
        let context = self.text("context").map(str::to_owned);
        Options {
            config_file: file.or_else(|| variable(environment::CONFIG).map(PathBuf::from)),
            local_state: environment::local_state(),
            context: context.or_else(|| variable(environment::CONTEXT)?.into_string().ok()),
            endpoints: self.list("endpoints"),
            nodes: self.list("nodes"),
            timeout,
        }
    }

    fn list(&self, id: &str) -> Vec<String> {
        let values = self.matches.try_get_many::<String>(id).ok().flatten();
        values.map_or_else(Vec::new, |values| values.cloned().collect())
    }

    pub fn text(&self, id: &str) -> Option<&str> {
        let value = self.matches.try_get_one::<String>(id).ok().flatten()?;
        Some(value.as_str())
    }

    pub fn has(&self, id: &str) -> bool {
        matches!(self.matches.try_get_one::<bool>(id), Ok(Some(true)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        Line::parse(text.split(' ').map(OsString::from)).unwrap()
    }

    #[test]
    fn options_are_found_in_an_unfinished_line() {
        let stop = line("mainstay -e a:1 cell stop web ser --grace");
        assert_eq!(stop.text("cell"), Some("web"));
        assert_eq!(stop.options(Duration::ZERO).endpoints, ["a:1"]);
        let logs = line("mainstay logs -k --context prod -n n1,n2 -o x");
        assert!(logs.has("kubernetes") && !logs.has("follow"));
        let options = logs.options(Duration::ZERO);
        assert_eq!(options.context.as_deref(), Some("prod"));
        assert_eq!(options.nodes, ["n1", "n2"]);
        assert_eq!(logs.text("id"), None);
    }
}
