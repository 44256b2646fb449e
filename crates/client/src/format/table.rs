use std::fmt;

/// A table of plain columns without borders, two spaces between them, as `ps` prints it.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Starts a table with the titles of its columns.
    pub fn new(header: &[&str]) -> Self {
        Self {
            rows: vec![header.iter().map(|&title| title.to_owned()).collect()],
        }
    }

    /// Adds a row; unprintable characters become `?`.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows
            .push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }
}

/// Replaces control, zero-width and bidirectional characters, so that text of a node can neither
/// move the cursor nor reorder its neighbours.
pub fn printable(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars()
        .map(|c| if hidden(c) { '?' } else { c })
        .collect()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let line: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, &width)| format!("{cell:<width$}"))
                .collect();
            writeln!(f, "{}", line.join("  ").trim_end())?;
        }
        Ok(())
    }
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
    fn unprintable_characters_become_question_marks() {
        assert_eq!(
            printable("a\u{202e}b\u{200b}c\td\u{9b}e é 日"),
            "a?b?c?d?e é 日"
        );
    }
}
