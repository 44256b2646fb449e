//! Text of nodes, received as byte chunks that may end anywhere, written to stdout.

use std::collections::HashMap;
use std::io::Write;

use serde_json::json;

use super::item;
use crate::cli::Format;
use crate::failure::Outcome;

/// Writes the bytes of one node as they come. Of several nodes it writes whole lines, prefixed with
/// the node; in JSON and YAML each line is an object.
#[derive(Debug)]
pub struct NodeLines {
    format: Format,
    several: bool,
    unfinished: HashMap<String, Vec<u8>>,
}

impl NodeLines {
    pub fn new(format: Format, several: bool) -> Self {
        Self {
            format,
            several,
            unfinished: HashMap::new(),
        }
    }

    pub fn write(&mut self, out: &mut impl Write, node: &str, bytes: &[u8]) -> Outcome {
        if self.format == Format::Table && !self.several {
            return Ok(out.write_all(bytes)?);
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
        Ok(out.flush()?)
    }

    fn line(&self, out: &mut impl Write, node: &str, line: &[u8]) -> Outcome {
        match self.format {
            Format::Table => {
                out.write_all(node.as_bytes())?;
                out.write_all(b": ")?;
                out.write_all(line)?;
                out.write_all(b"\n")?;
            }
            format => {
                let line = String::from_utf8_lossy(line);
                let text = item(format, &json!({ "node": node, "line": line }))?;
                out.write_all(text.as_bytes())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: Format, several: bool, chunks: &[(&str, &str)]) -> String {
        let mut out = Vec::new();
        let mut lines = NodeLines::new(format, several);
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
