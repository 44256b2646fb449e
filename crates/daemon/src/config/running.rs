//! The configuration of a running daemon, and its text without secrets.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};

use super::Config;
use super::keys::{as_value, changed_keys};
use super::secrets::redact;

/// The configuration in force, as it was at the start, and as the next start finds it.
#[derive(Debug)]
pub struct RunningConfig {
    started: Config,
    current: ArcSwap<Config>,
    /// The configuration in the file, if it was written for the next start.
    staged: ArcSwapOption<Config>,
}

impl RunningConfig {
    pub fn new(config: &Config) -> Self {
        Self {
            started: config.clone(),
            current: ArcSwap::from_pointee(config.clone()),
            staged: ArcSwapOption::empty(),
        }
    }

    /// The configuration in force.
    pub fn current(&self) -> Arc<Config> {
        self.current.load_full()
    }

    /// Remembers a configuration that was put in force.
    pub fn replace(&self, config: Config) {
        self.current.store(config.into());
    }

    /// Remembers the configuration that only the next start reads; `None` if the file is in force.
    pub fn stage(&self, config: Option<Config>) {
        self.staged.store(config.map(Arc::new));
    }

    /// The keys that were changed since the start and take effect on restart.
    pub fn pending_restart(&self) -> Vec<String> {
        let current = self.current.load();
        let mut keys: Vec<String> = (self.started.restart_needed(&current).into_iter())
            .map(str::to_owned)
            .collect();
        if let Some(staged) = &*self.staged.load() {
            for key in changed_keys(&current.settings, &staged.settings) {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        keys
    }

    /// The keys of `new` that have to wait for a restart and do not wait already.
    pub fn restart_needed(&self, new: &Config) -> Vec<&'static str> {
        let changed = self.current.load().restart_needed(new);
        let mut needed = self.started.restart_needed(new);
        needed.retain(|key| changed.contains(key));
        needed
    }

    /// Every key with its value as TOML; the values of secret keys are replaced.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        let mut value = as_value(&self.current.load().settings);
        redact(&mut value);
        toml::to_string_pretty(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    #[test]
    fn the_text_is_a_valid_configuration_file() {
        let text = "names = ['a']\n[time]\nserver = 'ntp.example.org'\n[peers]\nn2 = '10.0.0.2'\n";
        let config = |text: &str| Config {
            file: None,
            state: "/s".into(),
            settings: Settings::parse(text).unwrap(),
        };
        let running = RunningConfig::new(&config(text));
        let written = running.to_toml().unwrap();
        assert_eq!(Settings::parse(&written).unwrap(), config(text).settings);
        assert!(running.pending_restart().is_empty());
        running.replace(config("listen = '127.0.0.1:1'"));
        assert_eq!(running.pending_restart(), ["listen"]);
        assert!(running.to_toml().unwrap().contains("127.0.0.1:1"));
        // A change that waits already does not need another restart.
        let further = config("listen = '127.0.0.1:1'\nstop_timeout = '1s'");
        assert!(running.restart_needed(&further).is_empty());
        assert!(running.restart_needed(&config(text)).is_empty());
        running.stage(Some(further));
        assert_eq!(running.pending_restart(), ["listen", "stop_timeout"]);
    }
}
