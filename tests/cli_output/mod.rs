//! Snapshots of the output of the command: tables, messages and errors, from real nodes.

use mainstay_testkit::TestNode;

mod errors;
mod tables;

/// Binds filters for everything that differs between runs and machines.
fn filters(node: &TestNode) -> insta::internals::SettingsBindDropGuard {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_snapshot_path("snapshots");
    settings.set_omit_expression(true);
    let state = node.state().display().to_string();
    settings.add_filter(&regex_of(&state), "[STATE]");
    let scratch = node.scratch().display().to_string();
    settings.add_filter(&regex_of(&scratch), "[SCRATCH]");
    settings.add_filter(r"127\.0\.0\.1:\d+", "[ENDPOINT]");
    settings.add_filter(r"/tmp/[\w./-]+", "[TMP]");
    settings.add_filter(r"\b[0-9a-f]{12,}\b", "[HEX]");
    settings.add_filter(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?", "[TIME]");
    settings.add_filter(r"\b\d+(\.\d)? [KMGTPE]?i?B\b", "[SIZE]");
    settings.add_filter(r"\b\d+:\d\d\.\d\b", "[CPU TIME]");
    settings.add_filter(r"\b\d+%", "[PERCENT]");
    settings.add_filter(r"\b(\d+m )?\d+ ?s\b", "[AGE]");
    settings.add_filter(r"\bPID \d+", "PID [PID]");
    settings.add_filter(r"\bv0\.\d+\.\d+\b", "[VERSION]");
    settings.add_filter(r"linux/\w+( .*)?", "linux/[ARCH AND PLATFORM]");
    // The width of a column depends on its values.
    settings.add_filter(r" {2,}", "  ");
    settings.bind_to_scope()
}

/// Escapes text for a filter.
fn regex_of(text: &str) -> String {
    let special = |c: char| !(c.is_ascii_alphanumeric() || c == '/' || c == '_');
    let mut regex = String::new();
    for c in text.chars() {
        if special(c) {
            regex.push('\\');
        }
        regex.push(c);
    }
    regex
}

/// Returns the header of a table and the rows that contain `text`.
fn header_and_rows_with(table: &str, text: &str) -> String {
    let rows = table.lines().enumerate();
    let rows = rows.filter(|(index, row)| *index == 0 || row.contains(text));
    rows.map(|(_, row)| format!("{row}\n")).collect()
}

/// Replaces every number that stands alone in a column, except 0.
fn without_numbers(table: &str) -> String {
    let replaced = |word: &str| match word.parse::<u64>() {
        Ok(1..) => "[NUMBER]".to_owned(),
        _ => word.to_owned(),
    };
    let row = |row: &str| row.split(' ').map(replaced).collect::<Vec<_>>().join(" ") + "\n";
    table.lines().map(row).collect()
}

fn hostname() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    assert!(!name.is_empty());
    name
}
