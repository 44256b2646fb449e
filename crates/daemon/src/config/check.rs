//! Checks the text of a configuration file and lists everything that is wrong with it.
//!
//! [`Settings::parse`] ends at the first error and quotes its line; here the text may come from
//! elsewhere, and the answer names every line to correct, without the values of secrets.

use std::fmt;
use std::ops::Range;

use toml::de::{DeTable, Error};

use super::Settings;
use super::secrets::has_secret_word;

/// Further errors are not reported.
const MAX_PROBLEMS: usize = 20;
/// Messages quote at most this much.
const MAX_MESSAGE_CHARS: usize = 400;

/// One error in the text of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            line,
            column,
            message,
        } = self;
        write!(f, "line {line}, column {column}: {message}")
    }
}

/// Parses the text of a configuration file, or returns its errors in the order of their lines.
pub fn check(text: &str) -> Result<Settings, Vec<Problem>> {
    let (_, syntax) = DeTable::parse_recoverable(text);
    if !syntax.is_empty() {
        return Err(sorted(
            syntax.iter().map(|error| problem(text, error)).collect(),
        ));
    }
    let mut problems = Vec::new();
    let mut rest = text.to_owned();
    while problems.len() < MAX_PROBLEMS {
        let error = match toml::from_str(&rest) {
            Ok(settings) if problems.is_empty() => return Ok(settings),
            Ok(_) => break,
            Err(error) => error,
        };
        problems.push(problem(&rest, &error));
        match error.span().and_then(|span| without(&rest, span)) {
            Some(shorter) => rest = shorter,
            None => break,
        }
    }
    Err(sorted(problems))
}

fn sorted(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort_by_key(|problem| (problem.line, problem.column));
    // What follows the first error of a line is often caused by it.
    problems.dedup_by_key(|problem| problem.line);
    problems.truncate(MAX_PROBLEMS);
    problems
}

fn problem(text: &str, error: &Error) -> Problem {
    let at = error.span().map_or(0, |span| span.start).min(text.len());
    let at = floor_char_boundary(text, at);
    let before = &text[..at];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let message = if has_secret_word(&text[line_start..at]) {
        "the value is not valid".to_owned()
    } else {
        let message = error.message().replace('\n', ", ");
        match message.char_indices().nth(MAX_MESSAGE_CHARS) {
            Some((end, _)) => format!("{}…", &message[..end]),
            None => message,
        }
    };
    Problem {
        line: before.matches('\n').count() + 1,
        column: text[line_start..at].chars().count() + 1,
        message,
    }
}

/// Blanks the lines of the span, and the whole section if it is in a header; every other line
/// keeps its number. Returns `None` if what remains is no TOML or nothing was blanked.
fn without(text: &str, span: Range<usize>) -> Option<String> {
    let (mut start, mut end) = (0, text.len());
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut offset = 0;
    for (number, line) in lines.iter().enumerate() {
        let next = offset + line.len();
        if (offset..next).contains(&span.start) {
            start = number;
        }
        if next >= span.end.max(span.start + 1) {
            end = number + 1;
            break;
        }
        offset = next;
    }
    let is_header = |line: &str| line.trim_start().starts_with('[');
    end = end.min(lines.len());
    if is_header(lines.get(start)?) {
        let section = lines
            .iter()
            .skip(start + 1)
            .position(|line| is_header(line));
        end = section.map_or(lines.len(), |length| start + 1 + length);
    }
    let blank = |(number, line): (usize, &&str)| match (start..end).contains(&number) {
        true => "\n".to_owned(),
        false => (*line).to_owned(),
    };
    let shorter: String = lines.iter().enumerate().map(blank).collect();
    let is_shorter = lines[start..end].iter().any(|line| !line.trim().is_empty());
    (is_shorter && DeTable::parse(&shorter).is_ok()).then_some(shorter)
}

fn floor_char_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check(text)
            .unwrap_err()
            .iter()
            .map(|problem| problem.line)
            .collect()
    }

    #[test]
    fn every_error_is_listed_with_its_line() {
        let text = "listen = 'nowhere'\n\n[log]\nlevle = 'info'\nfile_size = '1 parsec'\n\
                    [nothing]\na = 1\nb = 2\n[cells]\nusers = 0\n[peers]\nn1 = 'a b'\n";
        assert_eq!(lines(text), [1, 4, 5, 6, 10, 12]);
        let shown = check(text).unwrap_err()[1].to_string();
        assert!(
            shown.starts_with("line 4, column 1: unknown field `levle`, expected one of"),
            "{shown}"
        );
    }

    #[test]
    fn every_error_of_syntax_is_listed() {
        assert_eq!(lines("a = \n[log]\nlevel == 'info'\n"), [1, 3]);
        assert_eq!(lines("names = []\nnames = []\n"), [2]);
    }

    #[test]
    fn a_value_of_several_lines_is_one_error() {
        let text = "names = [\n  'good',\n  'bad name',\n  'worse name',\n]\nstate = 7\n";
        assert_eq!(lines(text), [1, 6]);
    }

    #[test]
    fn errors_about_secrets_do_not_quote_them() {
        let problems = check("[peers]\nn1 = { address = 'a', api_token = 'hunter2' }\n");
        let shown = format!("{problems:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
        let problems = check("[log]\npassword = hunter2\n").unwrap_err();
        assert!(!format!("{problems:?}").contains("hunter2"), "{problems:?}");
    }

    #[test]
    fn there_are_no_more_errors_than_anyone_reads() {
        let text: String = (0..500).map(|n| format!("key{n} = 1\n")).collect();
        assert_eq!(check(&text).unwrap_err().len(), MAX_PROBLEMS);
    }

    proptest! {
        #[test]
        fn a_text_is_valid_exactly_if_it_parses(text in "(?s)([a-z]{0,6}[=\\[\\]'\" \n.#]{0,3}){0,12}|.{0,60}") {
            let checked = check(&text);
            prop_assert_eq!(checked.is_ok(), Settings::parse(&text).is_ok());
            for problem in checked.err().into_iter().flatten() {
                prop_assert!(problem.line <= text.matches('\n').count() + 1);
            }
        }
    }
}
