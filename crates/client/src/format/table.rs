use std::fmt;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::printable;

/// Title of the first column of a table with rows of several nodes.
const NODE: &str = "NODE";

/// A table of plain columns without borders, two spaces between them, as `ps` prints it.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    max_width: usize,
}

impl Table {
    /// Starts a table with the titles of its columns.
    pub fn new(header: &[&str]) -> Self {
        Self {
            rows: vec![header.iter().map(|&title| title.to_owned()).collect()],
            max_width: usize::MAX,
        }
    }

    /// Removes the column `NODE`, for a table with rows of one node.
    #[must_use]
    pub fn without_node(mut self) -> Self {
        let header = self.rows.first();
        if header
            .and_then(|header| header.first())
            .is_some_and(|title| title == NODE)
        {
            for row in self.rows.iter_mut().filter(|row| !row.is_empty()) {
                row.remove(0);
            }
        }
        self
    }

    /// Cuts every line to this width in columns of a terminal.
    #[must_use]
    pub fn cut_to(mut self, width: usize) -> Self {
        self.max_width = width;
        self
    }

    /// Adds a row; unprintable characters become `?`.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows
            .push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.width()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let line: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, &width)| padded(cell, width))
                .collect();
            let line = line.join("  ");
            writeln!(f, "{}", cut(&line, self.max_width).trim_end())?;
        }
        Ok(())
    }
}

/// Returns the part of a line that fits into `max_width` columns.
fn cut(line: &str, max_width: usize) -> &str {
    let mut width: usize = 0;
    for (index, c) in line.char_indices() {
        width = width.saturating_add(c.width().unwrap_or(0));
        if width > max_width {
            return line.get(..index).unwrap_or(line);
        }
    }
    line
}

/// Pads a cell. A width in a format string panics beyond 65535, and a node may send longer text.
fn padded(cell: &str, width: usize) -> String {
    let missing = width.saturating_sub(cell.width());
    format!("{cell}{}", " ".repeat(missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_their_widest_value_and_lines_have_no_trailing_spaces() {
        let mut table = Table::new(&["NODE", "STATUS"]);
        table.row(vec!["a-long-name".to_owned(), "ok".to_owned()]);
        table.row(vec!["b\x1b[2J".to_owned(), String::new()]);
        assert_eq!(
            table.to_string(),
            "NODE         STATUS\na-long-name  ok\nb?[2J\n"
        );
    }

    #[test]
    fn a_cell_of_any_length_is_printed() {
        let mut table = Table::new(&["COMMAND", "STATE"]);
        let long = "x".repeat(100_000);
        table.row(vec![long.clone(), "R".to_owned()]);
        let shown = table.to_string();
        assert!(shown.ends_with(&format!("\n{long}  R\n")));
    }

    #[test]
    fn lines_are_cut_to_a_width_in_terminal_columns() {
        let mut table = Table::new(&["NODE", "NAME", "COMMAND"]).cut_to(12);
        table.row(["n", "日本", "a long command"].map(str::to_owned).to_vec());
        table.row(["n", "abcde", "日本"].map(str::to_owned).to_vec());
        assert_eq!(
            table.without_node().to_string(),
            "NAME   COMMA\n日本   a lon\nabcde  日本\n"
        );
    }

    #[test]
    fn only_a_column_called_node_is_removed() {
        let mut table = Table::new(&["FILE", "NAME"]);
        table.row(["a", "b"].map(str::to_owned).to_vec());
        assert_eq!(table.without_node().to_string(), "FILE  NAME\na     b\n");
    }
}
