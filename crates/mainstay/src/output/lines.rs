//! Text of nodes, received as byte chunks that may end anywhere, written to stdout.

use std::collections::HashMap;
use std::io::Write;

use mainstay_client::format::{TerminalFilter, printable};

use serde_json::json;

use super::item;
use crate::cli::Format;
use crate::failure::{Failure, Outcome};

/// Writes the bytes of one node as they come. Of several nodes it writes whole lines, prefixed with
/// the node; in JSON and YAML each line is an object. A terminal gets no control characters.
#[derive(Debug)]
pub struct NodeLines {
    format: Format,
    several: bool,
    filter: Option<TerminalFilter>,
    unfinished: HashMap<String, Vec<u8>>,
}

impl NodeLines {
    pub fn new(format: Format, several: bool, terminal: bool) -> Self {
        Self {
            format,
            several,
            filter: terminal.then(TerminalFilter::default),
            unfinished: HashMap::new(),
        }
    }

    pub fn write(&mut self, out: &mut impl Write, node: &str, bytes: &[u8]) -> Outcome {
        if self.format == Format::Table && !self.several {
            return match &mut self.filter {
                Some(filter) => out.write_all(filter.filter(bytes).as_bytes()),
                None => out.write_all(bytes),
            }
            .map_err(Failure::stdout);
        }
        let mut text = self.unfinished.remove(node).unwrap_or_default();
        text.extend_from_slice(bytes);
        let mut lines = text.split_inclusive(|b| *b == b'\n');
        let mut rest: &[u8] = &[];
        for line in &mut lines {
            match line.strip_suffix(b"\n") {
                Some(line) => self.line(out, node, line)?,
                None => rest = line,
            }
        }
        if !rest.is_empty() {
            self.unfinished.insert(node.to_owned(), rest.to_vec());
        }
        Ok(())
    }

    /// Writes the incomplete last lines.
    pub fn finish(&mut self, out: &mut impl Write) -> Outcome {
        let mut rest: Vec<_> = std::mem::take(&mut self.unfinished).into_iter().collect();
        rest.sort();
        for (node, line) in rest {
            self.line(out, &node, &line)?;
        }
        if let Some(filter) = &mut self.filter {
            out.write_all(filter.finish().as_bytes())
                .map_err(Failure::stdout)?;
        }
        out.flush().map_err(Failure::stdout)
    }

    fn line(&self, out: &mut impl Write, node: &str, line: &[u8]) -> Outcome {
        match self.format {
            Format::Table => {
                out.write_all(printable(node).as_bytes())
                    .map_err(Failure::stdout)?;
                out.write_all(b": ").map_err(Failure::stdout)?;
                if self.filter.is_some() {
                    let mut whole = TerminalFilter::default();
                    out.write_all(whole.filter(line).as_bytes())
                        .map_err(Failure::stdout)?;
                    out.write_all(whole.finish().as_bytes())
                        .map_err(Failure::stdout)?;
                } else {
                    out.write_all(line).map_err(Failure::stdout)?;
                }
                out.write_all(b"\n").map_err(Failure::stdout)?;
            }
            format => {
                let line = String::from_utf8_lossy(line);
                let text = item(format, &json!({ "node": node, "line": line }))?;
                out.write_all(text.as_bytes()).map_err(Failure::stdout)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: Format, several: bool, chunks: &[(&str, &str)]) -> String {
        written_to(format, several, false, chunks)
    }

    fn written_to(
        format: Format,
        several: bool,
        terminal: bool,
        chunks: &[(&str, &str)],
    ) -> String {
        let mut out = Vec::new();
        let mut lines = NodeLines::new(format, several, terminal);
        for (node, chunk) in chunks {
            lines.write(&mut out, node, chunk.as_bytes()).unwrap();
        }
        lines.finish(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn chunks_may_end_anywhere() {
        let chunks = [("a", "on"), ("a", "e\ntwo\n\nth"), ("a", "ree\nend")];
        assert_eq!(
            written(Format::Json, false, &chunks)
                .lines()
                .map(
                    |line| serde_json::from_str::<serde_json::Value>(line).unwrap()["line"].clone()
                )
                .collect::<Vec<_>>(),
            ["one", "two", "", "three", "end"]
        );
        assert_eq!(
            written(Format::Table, false, &chunks),
            "one\ntwo\n\nthree\nend"
        );
    }

    #[test]
    fn a_terminal_gets_no_control_sequences() {
        let chunks = [("a\x1b", "\x1b[2"), ("a\x1b", "Jx\ty\n\u{9b}2J")];
        let shown = |several| written_to(Format::Table, several, true, &chunks);
        assert_eq!(shown(false), "?[2Jx\ty\n?2J");
        assert_eq!(shown(true), "a?: ?[2Jx\ty\na?: ?2J\n");
        assert_eq!(
            written(Format::Table, false, &chunks),
            "\x1b[2Jx\ty\n\u{9b}2J"
        );
    }

    #[test]
    fn lines_of_several_nodes_are_not_interleaved() {
        let chunks = [
            ("a", "on"),
            ("b", "zw"),
            ("a", "e\n"),
            ("b", "ei\ndr"),
            ("a", "t"),
        ];
        assert_eq!(
            written(Format::Table, true, &chunks),
            "a: one\nb: zwei\na: t\nb: dr\n"
        );
    }
}
