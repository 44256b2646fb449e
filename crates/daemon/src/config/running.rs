//! The configuration of a running daemon, and its text without secrets.

use arc_swap::ArcSwap;
use serde_json::Value;

use super::Config;
use super::keys::as_value;

/// Words in the name of a key that holds a secret.
const SECRET_WORDS: [&str; 8] = [
    "credential",
    "credentials",
    "key",
    "passphrase",
    "password",
    "secret",
    "secrets",
    "token",
];
const REDACTED: &str = "(redacted)";

/// The configuration as it was last read, and as it was at the start.
#[derive(Debug)]
pub struct RunningConfig {
    started: Config,
    current: ArcSwap<Config>,
}

impl RunningConfig {
    pub fn new(config: &Config) -> Self {
        Self {
            started: config.clone(),
            current: ArcSwap::from_pointee(config.clone()),
        }
    }

    /// Remembers a configuration that was reloaded.
    pub fn replace(&self, config: &Config) {
        self.current.store(config.clone().into());
    }

    /// The keys that were changed since the start and take effect on restart.
    pub fn pending_restart(&self) -> Vec<&'static str> {
        self.started.restart_needed(&self.current.load())
    }

    /// Every key with its value as TOML; the values of secret keys are replaced.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        let mut value = as_value(&self.current.load().settings);
        redact(&mut value);
        toml::to_string_pretty(&value)
    }
}

/// Replaces secrets, and removes keys without a value, which TOML cannot write.
fn redact(value: &mut Value) {
    match value {
        Value::Object(table) => {
            table.retain(|_, value| !value.is_null());
            for (name, value) in table {
                if is_secret(name) {
                    *value = REDACTED.into();
                } else {
                    redact(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        _ => {}
    }
}

fn is_secret(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower
        .split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| SECRET_WORDS.contains(&word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::Settings;

    #[test]
    fn secrets_are_replaced_wherever_they_are() {
        let mut value = json!({
            "api_token": "t", "a": [{"Private-Key": "k", "monkey": "m"}], "none": null,
            "secret": {"inner": "s"}, "keep_events": 3,
        });
        redact(&mut value);
        let wanted = json!({
            "api_token": REDACTED, "a": [{"Private-Key": REDACTED, "monkey": "m"}],
            "secret": REDACTED, "keep_events": 3,
        });
        assert_eq!(value, wanted);
    }

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
        running.replace(&config("listen = '127.0.0.1:1'"));
        assert_eq!(running.pending_restart(), ["listen"]);
        assert!(running.to_toml().unwrap().contains("127.0.0.1:1"));
    }
}
