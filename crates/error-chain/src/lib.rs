//! Error texts for operators: an error with all its causes, joined once, at the edge (status, command
//! line, log line).
#![forbid(unsafe_code)]

mod links;

use std::error::Error;

use links::without_links;

/// Joins an error and its causes as `a: b: c`. A cause whose text is already there is skipped.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    without_links(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Step {
        text: &'static str,
        source: Option<Box<Step>>,
    }

    fn step(text: &'static str, source: Option<Step>) -> Step {
        Step {
            text,
            source: source.map(Box::new),
        }
    }

    #[test]
    fn every_cause_is_joined_in_order() {
        let error = step("a", Some(step("b", Some(step("c", None)))));
        assert_eq!(chain(&error), "a: b: c");
    }

    #[test]
    fn a_cause_the_text_already_has_is_not_repeated() {
        let inner = step("disk full", None);
        let outer = step("cannot write x: disk full", Some(inner));
        assert_eq!(chain(&outer), "cannot write x: disk full");
    }
}
