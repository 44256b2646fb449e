//! One line a call: what, who, from where, how it ended, how long it took.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use mainstay_journal::Timestamp;
use tonic::Code;

use super::Connection;
use crate::listener::CallGuard;
use crate::log::Lines;

/// A path longer than this is cut in the log: it is the caller's text.
const METHOD_BYTES: usize = 256;

/// A call that has begun.
pub(super) struct Record {
    method: String,
    connection: Arc<Connection>,
    began: Instant,
    /// Who is shown, if it is not the one at the other end of the connection.
    made_for: Option<String>,
    /// The nodes it was forwarded to.
    sent_to: Option<String>,
    /// Held for what its end means to the connection.
    _running: CallGuard,
}

/// A call whose end will be logged: exactly once, at the latest when this is dropped.
pub(super) struct CallLog {
    record: Record,
    requests: Lines,
    audit: Option<Lines>,
    ended: bool,
}

impl Record {
    pub(super) fn begin(connection: &Arc<Connection>, path: &str) -> Self {
        Self {
            method: path.to_owned(),
            connection: Arc::clone(connection),
            began: Instant::now(),
            made_for: None,
            sent_to: None,
            _running: connection.ticket.call(),
        }
    }

    pub(super) fn method(&self) -> &str {
        &self.method
    }

    pub(super) fn made_for(&mut self, shown: String) {
        self.made_for = Some(shown);
    }

    pub(super) fn sent_to(&mut self, nodes: String) {
        self.sent_to = Some(nodes);
    }

    pub(super) fn into_log(self, requests: Lines, audit: Option<Lines>) -> CallLog {
        CallLog {
            record: self,
            requests,
            audit,
            ended: false,
        }
    }
}

impl CallLog {
    pub(super) fn end(&mut self, code: Code) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let Record {
            method,
            connection,
            began,
            made_for,
            sent_to,
            ..
        } = &self.record;
        let who = made_for.as_ref().unwrap_or(&connection.shown);
        let time = Timestamp::now();
        let mut line = String::with_capacity(192);
        // Writing to a String cannot fail.
        let _ = write!(line, "{time} INFO call method=");
        push_word(&mut line, method);
        if let Some(nodes) = sent_to {
            let _ = write!(line, " nodes={nodes:?}");
        }
        let _ = write!(
            line,
            " {who} code={} took={}us",
            code_name(code),
            began.elapsed().as_micros()
        );
        if let Some(audit) = &self.audit {
            audit.push(
                time,
                line.replacen(" INFO call ", " AUDIT call ", 1).as_bytes(),
            );
        }
        self.requests.push(time, line.as_bytes());
    }
}

impl Drop for CallLog {
    fn drop(&mut self) {
        // Nobody waited for the end of the answer.
        self.end(Code::Cancelled);
    }
}

/// The caller chose these bytes: only what is harmless in a log line is shown as it is.
fn push_word(line: &mut String, word: &str) {
    let plain = |b: u8| b.is_ascii_graphic() && b != b'"' && b != b'\\';
    if word.len() <= METHOD_BYTES && word.bytes().all(plain) {
        line.push_str(word);
    } else {
        let cut: String = word.chars().take(METHOD_BYTES).collect();
        let _ = write!(line, "{cut:?}");
    }
}

/// The names gRPC users know.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_path_stays_on_its_line() {
        let mut line = String::new();
        push_word(&mut line, "/a\nforged INFO call \"x\"");
        assert_eq!(line, r#""/a\nforged INFO call \"x\"""#);
    }

    #[test]
    fn an_endless_path_is_cut() {
        let mut line = String::new();
        push_word(&mut line, &"x".repeat(1 << 20));
        assert!(line.len() < 300);
    }
}
