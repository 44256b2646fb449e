//! The keys of the configuration file as a list: paths, defaults, and which need a restart.

use serde_json::{Map, Value};

use super::{Config, Settings};
use crate::engines::restart_keys;

/// One key of the configuration file.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// The path with its sections, such as `log.level`.
    pub path: String,
    /// `null` where the default depends on the machine or the key is off.
    pub default: Value,
    /// Whether a change takes effect on restart only.
    pub needs_restart: bool,
}

impl Config {
    /// Lists every key that the configuration file may have.
    pub fn keys() -> Vec<Key> {
        let mut keys = Vec::new();
        if let Value::Object(sections) = as_value(&Settings::default()) {
            collect("", sections, &mut keys);
        }
        keys
    }

    /// Returns the keys that differ from `new` and take effect on restart only.
    pub(crate) fn restart_needed(&self, new: &Self) -> Vec<&'static str> {
        let (old, new) = (as_value(&self.settings), as_value(&new.settings));
        all_restart_keys()
            .filter(|key| {
                let pointer = format!("/{}", key.replace('.', "/"));
                old.pointer(&pointer) != new.pointer(&pointer)
            })
            .collect()
    }
}

/// Returns the paths of the keys whose values differ, in the order of the settings.
pub(crate) fn changed_keys(old: &Settings, new: &Settings) -> Vec<String> {
    let mut changed = Vec::new();
    compare("", &as_value(old), &as_value(new), &mut changed);
    changed
}

fn compare(path: &str, old: &Value, new: &Value, changed: &mut Vec<String>) {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        if old != new {
            changed.push(path.to_owned());
        }
        return;
    };
    let prefix = match path {
        "" => String::new(),
        path => format!("{path}."),
    };
    let added = new.keys().filter(|name| !old.contains_key(*name));
    for name in old.keys().chain(added) {
        let path = format!("{prefix}{name}");
        match (old.get(name), new.get(name)) {
            (Some(before), Some(after)) => compare(&path, before, after, changed),
            _ => changed.push(path),
        }
    }
}

fn all_restart_keys() -> impl Iterator<Item = &'static str> {
    std::iter::once("state").chain(restart_keys())
}

/// An empty table is a key of its own: its entries are the operator's.
fn collect(prefix: &str, table: Map<String, Value>, keys: &mut Vec<Key>) {
    for (name, value) in table {
        let path = format!("{prefix}{name}");
        match value {
            Value::Object(inner) if !inner.is_empty() => collect(&format!("{path}."), inner, keys),
            default => keys.push(Key {
                needs_restart: all_restart_keys().any(|key| key == path),
                path,
                default,
            }),
        }
    }
}

/// Settings consist of text, numbers and tables with text as keys, all of which JSON has.
pub(super) fn as_value(settings: &Settings) -> Value {
    serde_json::to_value(settings).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn config(text: &str) -> Config {
        Config {
            file: None,
            state: PathBuf::new(),
            settings: Settings::parse(text).unwrap(),
        }
    }

    #[test]
    fn every_restart_key_exists() {
        let keys = Config::keys();
        for wanted in all_restart_keys() {
            let key = keys.iter().find(|key| key.path == wanted);
            assert!(key.is_some_and(|key| key.needs_restart), "{wanted}");
        }
    }

    #[test]
    fn a_change_of_each_restart_key_is_found() {
        let old = config("");
        for (text, key) in [
            ("state = '/elsewhere'", "state"),
            ("listen = '127.0.0.1:1'", "listen"),
            ("pods_listen = '127.0.0.1:1'", "pods_listen"),
            (
                "[compatibility]\naurae_socket = '/a.sock'",
                "compatibility.aurae_socket",
            ),
            ("platform = 'host'", "platform"),
            ("[cells]\ncgroup = 'other'", "cells.cgroup"),
            ("[cells]\nfirst_user = 1", "cells.first_user"),
            ("[cells]\nusers = 1", "cells.users"),
        ] {
            assert_eq!(old.restart_needed(&config(text)), [key]);
        }
        let live = config("names = ['a']\n[log]\nlevel = 'debug'\n[peers]\na = 'b'");
        assert!(old.restart_needed(&live).is_empty());
    }

    #[test]
    fn changed_keys_are_found_by_their_path() {
        let old = "names = ['a']\n[peers]\nn1 = 'h1'\nn2 = 'h2'\n[log]\nlevel = 'info'";
        let new = "names = ['b']\n[peers]\nn1 = 'h3'\nn4 = 'h4'\n[log]\nlevel = 'debug'";
        let changed = changed_keys(&config(old).settings, &config(new).settings);
        let wanted = ["names", "log.level", "peers.n1", "peers.n2", "peers.n4"];
        assert_eq!(changed, wanted);
    }

    #[test]
    fn settings_survive_being_written_and_read() {
        let text = "state = '/s'\nnames = ['a', '::1']\npods_listen = '127.0.0.1:1'\n\
                    stop_timeout = '90s'\n\
                    [log]\nlevel = 'trace'\nfile_size = '5000'\n[events]\nkeep_for = '36h'\n\
                    [identity]\nrevoked = ['AB:01']\n[containers]\ncri = '/run/c.sock'\n\
                    [containers.namespaces]\nsystem = '/s.sock'\n[cells]\ncgroup = 'a/b'\n\
                    [peers]\nn2 = '10.0.0.2'\nn3 = '[::1]:5'\nn4 = 'host:6'\nn5 = '::1'\n\
                    n6 = { address = 'h', max_role = 'os:operator' }\n\
                    [forwarding]\ntargets = 'any'\nmax_role = 'os:reader'\n";
        let settings = config(text).settings;
        let again: Settings = serde_json::from_value(as_value(&settings)).unwrap();
        assert_eq!(again, settings);
    }

    /// The block of the documentation that lists the keys.
    fn documented() -> String {
        let text = include_str!("../../../../docs/configuration.md");
        let block = text.split("```toml\n").nth(1).unwrap();
        block.split("```").next().unwrap().to_owned()
    }

    /// Returns the key of a line that documents it commented out: `# name = value`.
    fn uncommented(line: &str) -> Option<&str> {
        let rest = line.strip_prefix("# ")?;
        let (name, _) = rest.split_once(" = ")?;
        let is_key = |c: char| c.is_ascii_alphanumeric() || c == '_';
        name.chars().all(is_key).then_some(rest)
    }

    #[test]
    fn the_documentation_lists_every_key_with_its_default() {
        let text = documented();
        // Entries of tables whose keys the operator chooses are examples, not defaults.
        let set: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(Settings::parse(&text).unwrap(), Settings::default());
        let with_commented: Vec<_> = text
            .lines()
            .map(|line| uncommented(line).unwrap_or(line))
            .collect();
        let all: toml::Table = toml::from_str(&with_commented.join("\n")).unwrap();
        Settings::parse(&with_commented.join("\n")).unwrap();

        let at = |table: &toml::Table, path: &str| {
            let mut value = toml::Value::Table(table.clone());
            for name in path.split('.') {
                value = value.get(name)?.clone();
            }
            Some(value)
        };
        let keys = Config::keys();
        for key in &keys {
            assert!(at(&all, &key.path).is_some(), "{} is missing", key.path);
            let is_set = at(&set, &key.path).is_some();
            assert_eq!(is_set, !key.default.is_null(), "{}", key.path);
        }
        // Nothing is documented beyond that: what the text holds is exactly the keys.
        let leaves = |value: &toml::Table| -> usize {
            let value = serde_json::to_value(value).unwrap();
            let mut found = Vec::new();
            collect("", value.as_object().unwrap().clone(), &mut found);
            // A section whose keys are all commented out is empty, but no key.
            found.retain(|leaf| {
                let empty = leaf.default.as_object().is_some_and(Map::is_empty);
                !empty || keys.iter().any(|key| key.path == leaf.path)
            });
            found.len()
        };
        let optional = keys.iter().filter(|key| key.default.is_null()).count();
        assert_eq!(leaves(&set), keys.len() - optional);
    }

    #[test]
    fn the_documentation_marks_the_keys_that_need_a_restart() {
        let mut section = String::new();
        let mut marked = Vec::new();
        for line in documented().lines() {
            if let Some(rest) = line.strip_prefix('[') {
                section = format!("{}.", rest.split(']').next().unwrap());
            } else if line.contains("(restart)") {
                let line = line.trim_start_matches("# ");
                let (name, _) = line.split_once(" = ").unwrap();
                marked.push(format!("{section}{name}"));
            }
        }
        let mut wanted: Vec<_> = all_restart_keys().map(str::to_owned).collect();
        marked.sort();
        wanted.sort();
        assert_eq!(marked, wanted);
    }
}
