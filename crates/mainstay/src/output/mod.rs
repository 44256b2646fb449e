//! Results of commands: tables for people, JSON and YAML for programs. Only results go to stdout.

mod lines;

use std::io::Write;

use mainstay_client::{Answer, format};
use prost::Message;
use serde_json::Value;

use crate::cli::Format;
use crate::failure::{Exit, Failure, Outcome};

pub use lines::NodeLines;

/// Writes text to stdout.
pub fn print(text: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Prints the only document of a command that answers once.
pub fn print_document(format: Format, value: &Value) -> Outcome {
    match format {
        Format::Yaml => print(&yaml(value)?),
        Format::Json | Format::Table => print(&format!("{value:#}\n")),
    }
}

/// Prints the answers of several nodes as a list of objects with a `node` field.
pub fn print_answers<M: Message>(
    format: Format,
    message_name: &str,
    answers: &[Answer<M>],
) -> Outcome {
    let entries: Vec<Value> = answers
        .iter()
        .map(|answer| {
            let mut entry = format::to_json(message_name, &answer.message);
            entry["node"] = Value::from(answer.node.as_str());
            entry
        })
        .collect();
    print_document(format, &Value::from(entries))
}

/// Prints one item of a stream: JSON one per line, YAML as a document of its own.
pub fn print_item(format: Format, value: &Value) -> Outcome {
    print(&item(format, value)?)
}

/// Formats one item of a stream.
pub fn item(format: Format, value: &Value) -> Outcome<String> {
    Ok(match format {
        Format::Yaml => format!("---\n{}", yaml(value)?),
        Format::Json | Format::Table => format!("{value}\n"),
    })
}

fn yaml(value: &Value) -> Outcome<String> {
    let mut text = serde_saphyr::to_string(value)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot write YAML: {error}")))?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}
