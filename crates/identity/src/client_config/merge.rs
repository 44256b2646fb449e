//! Merging of two client configurations without losing a context of either.

use super::{ClientConfig, Context};

/// A context that was renamed because its name was in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renamed {
    /// The name it had.
    pub from: String,
    /// The name it has now.
    pub to: String,
}

impl ClientConfig {
    /// Adds every context of `other`. A name in use by a different context gets `-1`, `-2`, …
    /// appended; an identical context is skipped. The current context stays, unless there was none.
    pub fn merge(&mut self, other: Self) -> Vec<Renamed> {
        let Self {
            context: wanted,
            contexts,
            extra,
        } = other;
        let mut renamed = Vec::new();
        let mut chosen = None;
        for (from, context) in contexts {
            let to = self.place_for(&from, &context);
            if from == wanted {
                chosen = Some(to.clone());
            }
            self.contexts.insert(to.clone(), context);
            if to != from {
                renamed.push(Renamed { from, to });
            }
        }
        if self.context.is_empty() {
            self.context = chosen.unwrap_or_default();
        }
        for (key, value) in extra {
            self.extra.entry(key).or_insert(value);
        }
        renamed
    }

    fn place_for(&self, name: &str, context: &Context) -> String {
        let free = |candidate: &str| self.contexts.get(candidate).is_none_or(|c| c == context);
        if free(name) {
            return name.to_owned();
        }
        let mut number = 1_u64;
        loop {
            let candidate = format!("{name}-{number}");
            if free(&candidate) {
                return candidate;
            }
            number += 1;
        }
    }
}
