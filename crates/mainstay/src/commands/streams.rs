//! Output shared by several commands: text, and entries of file trees, of all nodes as they come.

use std::io::{BufWriter, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

use clap::builder::TypedValueParser;
use futures_util::StreamExt;
use mainstay_api::common::{Data, Metadata};
use mainstay_api::machine::{DiskUsageInfo, FileInfo};
use prost::{Message, Name};
use serde_json::json;
use tonic::Streaming;

use crate::cli::Format;
use crate::connection::Connection;
use crate::failure::{Exit, Failure, Outcome, warn};
use crate::output::{self, NodeLines};
use mainstay_client::format::{printable, to_json};
use mainstay_paths::escape_wire;

/// Parses a path of the node: as it is, or with escapes as `mainstay ls` prints them. Returns it as
/// requests carry it.
pub(super) fn node_path() -> impl TypedValueParser<Value = String> {
    clap::builder::OsStringValueParser::new()
        .map(|path| mainstay_paths::wire_of_argument(path.as_bytes()))
}

/// Refuses a range of times that ends before it starts.
pub(super) fn check_times(
    since: Option<jiff::Timestamp>,
    until: Option<jiff::Timestamp>,
) -> Outcome {
    match since.zip(until) {
        Some((since, until)) if since > until => Err(Failure::usage(format!(
            "--since is after --until ({since} is after {until})"
        ))),
        _ => Ok(()),
    }
}

/// Prints a stream of text to its end.
pub(super) async fn print_text(
    client: &Connection,
    format: Format,
    mut stream: Streaming<Data>,
) -> Outcome {
    let terminal = std::io::stdout().is_terminal();
    let mut lines = NodeLines::new(format, client.has_many_nodes(), terminal);
    let mut out = std::io::stdout().lock();
    while let Some(data) = stream.next().await {
        let data = data?;
        client.report(data.metadata.as_ref());
        let node = client.node_name(data.metadata.as_ref());
        lines.write(&mut out, &node, &data.bytes)?;
        out.flush().map_err(Failure::stdout)?;
    }
    lines.finish(&mut out)?;
    client.finish()
}

/// An entry of a file tree, or the error of reading it.
pub(super) trait Entry: Message + Name {
    fn metadata(&self) -> Option<&Metadata>;
    fn path(&self) -> &str;
    fn error(&self) -> &str;
}

macro_rules! entries {
    ($($entry:ty),+) => {$(
        impl Entry for $entry {
            fn metadata(&self) -> Option<&Metadata> {
                self.metadata.as_ref()
            }

            fn path(&self) -> &str {
                &self.name
            }

            fn error(&self) -> &str {
                &self.error
            }
        }
    )+};
}
entries!(FileInfo, DiskUsageInfo);

/// Prints a stream of entries to its end; `line` formats one for the table, or hides it.
pub(super) async fn print_entries<E: Entry>(
    client: &Connection,
    format: Format,
    mut stream: Streaming<E>,
    line: impl Fn(&E) -> Option<String>,
) -> Outcome {
    let mut failed = 0_u64;
    // A tree has many entries; buffering avoids a write for each.
    let mut out = BufWriter::with_capacity(64 << 10, std::io::stdout().lock());
    while let Some(entry) = stream.next().await {
        let entry = entry?;
        if client.report(entry.metadata()) {
            continue;
        }
        let node = client.node_name(entry.metadata());
        let before = printable(&client.line_prefix(&node));
        if !entry.error().is_empty() {
            let path = escape_wire(entry.path());
            warn(&format!("{before}{path}: {}", entry.error()));
            failed += 1;
            continue;
        }
        let text = match format {
            Format::Table => match line(&entry) {
                Some(line) => format!("{before}{line}"),
                None => continue,
            },
            format => {
                let mut value = to_json(&E::full_name(), &entry);
                value["node"] = json!(node);
                output::item(format, &value)?
            }
        };
        out.write_all(text.as_bytes()).map_err(Failure::stdout)?;
    }
    out.flush().map_err(Failure::stdout)?;
    client.finish()?;
    match failed {
        0 => Ok(()),
        failed => Err(Failure::new(
            Exit::Failed,
            format!("cannot read {failed} entries; the warnings above name them"),
        )),
    }
}
