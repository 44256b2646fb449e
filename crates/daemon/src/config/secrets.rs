//! Secrets in configurations: keys whose name says so, and their replacement in values and texts.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

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
pub(super) const REDACTED: &str = "(redacted)";
/// Takes the place of a secret that differs from the one it replaces.
const REDACTED_CHANGE: &str = "(redacted, changed)";

/// Returns true if `text` contains a word of a secret's name.
pub(super) fn has_secret_word(text: &str) -> bool {
    text.to_ascii_lowercase()
        .split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| SECRET_WORDS.contains(&word))
}

/// Replaces secrets, and removes keys without a value, which TOML cannot write.
pub(super) fn redact(value: &mut Value) {
    match value {
        Value::Object(table) => {
            table.retain(|_, value| !value.is_null());
            for (name, value) in table {
                if has_secret_word(name) {
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

/// The secrets of a text by the path of their keys, to find out which of them changed.
type Secrets<'a> = BTreeMap<String, &'a str>;

/// The text of a configuration file before and after a change, without secrets; a secret that
/// changed is marked. Returns `None` for a text that is no TOML: its secrets cannot be found.
pub fn redacted_texts(before: &str, after: &str) -> (Option<String>, Option<String>) {
    let old = spans(before);
    let known: Secrets<'_> = old.iter().flatten().cloned().map(raw(before)).collect();
    let none = Secrets::new();
    (
        old.as_ref().map(|spans| redacted(before, spans, &none)),
        spans(after).map(|spans| redacted(after, &spans, &known)),
    )
}

fn raw<'t>(text: &'t str) -> impl Fn(Secret) -> (String, &'t str) {
    move |secret| (secret.path, text.get(secret.span).unwrap_or_default())
}

#[derive(Debug, Clone)]
struct Secret {
    path: String,
    span: Range<usize>,
}

/// The secrets of a text in the order of their place.
fn spans(text: &str) -> Option<Vec<Secret>> {
    let table = DeTable::parse(text).ok()?;
    let mut found = Vec::new();
    of_table("", table.get_ref(), false, &mut found);
    found.sort_by_key(|secret| secret.span.start);
    Some(found)
}

fn of_table(prefix: &str, table: &DeTable<'_>, secret: bool, found: &mut Vec<Secret>) {
    for (name, value) in table {
        let name = name.get_ref();
        let secret = secret || has_secret_word(name);
        of_value(format!("{prefix}{name}"), value, secret, found);
    }
}

fn of_value(path: String, value: &Spanned<DeValue<'_>>, secret: bool, found: &mut Vec<Secret>) {
    match value.get_ref() {
        DeValue::Table(table) => of_table(&format!("{path}."), table, secret, found),
        DeValue::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                of_value(format!("{path}.{number}"), item, secret, found);
            }
        }
        _ if secret => found.push(Secret {
            path,
            span: value.span(),
        }),
        _ => {}
    }
}

fn redacted(text: &str, secrets: &[Secret], before: &Secrets<'_>) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut at = 0;
    for Secret { path, span } in secrets {
        let (Some(between), Some(raw)) = (text.get(at..span.start), text.get(span.clone())) else {
            continue;
        };
        shown.push_str(between);
        let changed = before.get(path).is_some_and(|before| *before != raw);
        let replacement = if changed { REDACTED_CHANGE } else { REDACTED };
        shown.push_str(&format!("\"{replacement}\""));
        at = span.end;
    }
    shown.push_str(text.get(at..).unwrap_or_default());
    let lines = shown.split_inclusive('\n').map(without_commented_secret);
    lines.collect()
}

/// A key that is commented out keeps its value in the file.
fn without_commented_secret(line: &str) -> String {
    let comment = line.trim_start().starts_with('#');
    match line.split_once('=') {
        Some((name, _)) if comment && has_secret_word(name) => {
            let end = if line.ends_with('\n') { "\n" } else { "" };
            format!("{name}= {REDACTED}{end}")
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

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
    fn secrets_of_a_text_are_replaced_and_changes_of_them_marked() {
        let before = "a = 1 # one\ntoken = \"\"\"\nold\nlines\"\"\"\n[x.secrets]\nb = 'same'\n";
        let after = "a = 1 # one\ntoken = 'new'\n# password = 'was'\n[x]\nsecrets = { b = 'same' }\n\
                     [[y]]\napi_key = ['k1', 'k2']\n";
        let (before, after) = redacted_texts(before, after);
        assert_eq!(
            before.unwrap(),
            "a = 1 # one\ntoken = \"(redacted)\"\n[x.secrets]\nb = \"(redacted)\"\n"
        );
        assert_eq!(
            after.unwrap(),
            "a = 1 # one\ntoken = \"(redacted, changed)\"\n# password = (redacted)\n[x]\n\
             secrets = { b = \"(redacted)\" }\n[[y]]\napi_key = [\"(redacted)\", \"(redacted)\"]\n"
        );
    }

    #[test]
    fn a_text_that_is_no_toml_is_not_shown() {
        assert_eq!(redacted_texts("token = hunter2", "").0, None);
    }

    proptest! {
        #[test]
        fn no_secret_survives(name in "[a-z]{0,3}_?(token|key|password)", secret in "[A-Z]{8,12}") {
            let forms = [
                format!("{name} = '{secret}'"),
                format!("[a]\n{name} = \"{secret}\""),
                format!("{name} = [1, {{ x = '''\n{secret}''' }}]"),
                format!("a.{name}.b = '{secret}'"),
                format!("[[{name}]]\nb = '{secret}'"),
            ];
            // Other words than those of a secret are no secrets.
            prop_assume!(has_secret_word(&name));
            for text in forms {
                let (shown, _) = redacted_texts(&text, "");
                prop_assert!(!shown.unwrap().contains(&secret), "{}", text);
            }
        }
    }
}
