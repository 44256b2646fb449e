//! A change that is checked and can be made: the file before, the configuration after, and what
//! the caller should know about it.

use toml::Table;

use super::difference::difference;
use super::file::ConfigFile;
use super::{Change, ChangeError, lock_out, target};
use crate::config::{Config, Overrides, RunningConfig, changed_keys, check};

/// A summary names this many keys.
const MAX_NAMED_KEYS: usize = 20;

#[derive(Debug)]
pub(super) struct Plan {
    pub(super) file: ConfigFile,
    pub(super) text: String,
    pub(super) new: Config,
    pub(super) warnings: Vec<String>,
    /// The keys that change and take effect at once.
    at_once: Vec<String>,
    /// The keys that change and wait for a restart.
    pub(super) on_restart: Vec<&'static str>,
}

impl Plan {
    /// Reads and checks everything; changes nothing. Blocks on the file system.
    pub(super) fn new(
        running: &RunningConfig,
        overrides: &Overrides,
        change: &Change,
    ) -> Result<Self, ChangeError> {
        let current = running.current();
        let text = std::str::from_utf8(&change.data).map_err(|error| ChangeError::NotText {
            at: error.valid_up_to(),
        })?;
        let settings = check(text).map_err(|problems| ChangeError::Invalid { problems })?;
        let file = ConfigFile::read(&target(&current))?;
        if change.expected.as_ref().is_some_and(|it| it != file.text()) {
            return Err(ChangeError::FileChanged { path: file.path });
        }
        let path = Some(target(&current));
        let new = Config::with_overrides(settings, path, overrides)
            .map_err(|source| ChangeError::Unusable { source })?;
        let on_restart = running.restart_needed(&new);
        let at_once = changed_keys(&current.settings, &new.settings)
            .into_iter()
            .filter(|key| !on_restart.contains(&key.as_str()))
            .collect();
        let mut warnings = lock_out::warnings(&current, &new, &change.by);
        warnings.extend(overridden(text, overrides));
        Ok(Self {
            file,
            text: text.to_owned(),
            new,
            warnings,
            at_once,
            on_restart,
        })
    }

    pub(super) fn difference(&self) -> String {
        difference(&self.file.path, self.file.text(), &self.text)
    }

    /// One sentence about the keys.
    pub(super) fn summary(&self) -> String {
        let restart: Vec<String> = self.on_restart.iter().map(ToString::to_string).collect();
        let restart = (!restart.is_empty()).then(|| format!("on restart: {}", named(&restart)));
        let at_once =
            (!self.at_once.is_empty()).then(|| format!("at once: {}", named(&self.at_once)));
        let parts: Vec<String> = at_once.into_iter().chain(restart).collect();
        match parts.as_slice() {
            [] => "no key changes".to_owned(),
            parts => format!("keys changed {}", parts.join("; ")),
        }
    }
}

fn named(keys: &[String]) -> String {
    let shown = keys[..keys.len().min(MAX_NAMED_KEYS)].join(", ");
    match keys.len().saturating_sub(MAX_NAMED_KEYS) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Names the keys of the text that an option of the command line replaces.
fn overridden(text: &str, overrides: &Overrides) -> Vec<String> {
    let Ok(table) = text.parse::<Table>() else {
        return Vec::new();
    };
    let is_set = |key: &str| match key.split_once('.') {
        Some((section, key)) => (table.get(section))
            .and_then(|section| section.get(key))
            .is_some(),
        None => table.contains_key(key),
    };
    (overrides.replaced_keys())
        .filter(|(key, _)| is_set(key))
        .map(|(key, option)| {
            format!("{key} has no effect: the daemon was started with {option}, which wins")
        })
        .collect()
}
