//! Results of commands: tables for people, JSON and YAML for programs. Only results go to stdout.

mod lines;

use std::io::{IsTerminal, Write};

use mainstay_client::{Answer, format};
use prost::Message;
use serde_json::Value;

use crate::cli::Format;
use crate::failure::{Exit, Failure, Outcome};

pub use lines::NodeLines;

/// Writes text to stdout, without control characters if that is a terminal.
pub fn print(text: &str) -> Outcome {
    if std::io::stdout().is_terminal() {
        return print_raw(&format::printable_lines(text));
    }
    print_raw(text)
}

/// Writes text to stdout as it is: control sequences of this command, or credentials.
pub fn print_raw(text: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(Failure::stdout)
}

/// Prints the only document of a command that answers once.
pub fn print_document(format: Format, value: &Value) -> Outcome {
    match format {
        Format::Yaml => print(&yaml(value)?),
        Format::Json | Format::Table => print(&json(&format!("{value:#}\n"))),
    }
}

/// Returns the width of the terminal on stdout; `None` if there is none.
pub fn terminal_width() -> Option<usize> {
    let out = std::io::stdout();
    let size = rustix::termios::tcgetwinsize(&out).ok()?;
    (out.is_terminal() && size.ws_col > 0).then_some(usize::from(size.ws_col))
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
        Format::Json | Format::Table => json(&format!("{value}\n")),
    })
}

fn json(text: &str) -> String {
    match std::io::stdout().is_terminal() {
        true => format::json_for_terminal(text),
        false => text.to_owned(),
    }
}

fn yaml(value: &Value) -> Outcome<String> {
    let mut text = serde_saphyr::to_string(value)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot write YAML: {error}")))?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    if std::io::stdout().is_terminal() {
        text = format::printable_lines(&text);
    }
    Ok(text)
}
