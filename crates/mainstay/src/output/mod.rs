//! How results reach the user: tables for people, JSON and YAML for programs. Results go to
//! stdout and nothing else does.

mod lines;
mod message;
mod sizes;
mod table;
mod times;

use std::io::Write;

use prost::Message;
use serde_json::Value;

use crate::cli::Format;
use crate::client::Answer;
use crate::failure::{Exit, Failure, Outcome};

pub use lines::NodeLines;
pub use message::{value, value_of_bytes};
pub use sizes::{parse_size, percent, size};
pub use table::{Table, printable};
pub use times::{local_time, moment, span, wire_time};

pub fn print(text: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// The one document of a command that answers once.
pub fn document(format: Format, value: &Value) -> Outcome {
    match format {
        Format::Yaml => print(&yaml(value)?),
        Format::Json | Format::Table => print(&format!("{value:#}\n")),
    }
}

/// The answers of several nodes: a list with one entry each, `node` telling whose it is.
pub fn per_node<M: Message>(format: Format, message_name: &str, answers: &[Answer<M>]) -> Outcome {
    let entries: Vec<Value> = answers
        .iter()
        .map(|answer| {
            let mut entry = value(message_name, &answer.message);
            entry["node"] = Value::from(answer.node.as_str());
            entry
        })
        .collect();
    document(format, &Value::from(entries))
}

/// One of many: JSON one per line, YAML as documents of their own.
pub fn stream_item(format: Format, value: &Value) -> Outcome {
    print(&stream_text(format, value)?)
}

/// What [`stream_item`] prints, for those who gather it first.
pub fn stream_text(format: Format, value: &Value) -> Outcome<String> {
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
