//! One log line per call: method, caller, peer, status code, duration.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use mainstay_journal::Timestamp;
use tonic::Code;

use crate::connection::{CallGuard, Connection};
use crate::log::Lines;

/// Longer paths are cut in the log: they are the caller's text.
const MAX_METHOD_BYTES: usize = 256;

/// A running call.
pub(super) struct Record {
    method: String,
    connection: Arc<Connection>,
    began: Instant,
    /// Log fields of the caller that a node forwards the call for.
    forwarded_for: Option<String>,
    /// The nodes it is forwarded to.
    forwarded_to: Option<String>,
    /// Keeps the connection from being evicted.
    _running: CallGuard,
}

/// A call that is logged exactly once: at its end, or when this is dropped.
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
            forwarded_for: None,
            forwarded_to: None,
            _running: connection.ticket.call(),
        }
    }

    pub(super) fn method(&self) -> &str {
        &self.method
    }

    pub(super) fn forwarded_for(&mut self, shown: String) {
        self.forwarded_for = Some(shown);
    }

    pub(super) fn forwarded_to(&mut self, nodes: String) {
        self.forwarded_to = Some(nodes);
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
            forwarded_for,
            forwarded_to,
            ..
        } = &self.record;
        let who = forwarded_for.as_ref().unwrap_or(&connection.log_fields);
        let time = Timestamp::now();
        let mut line = String::with_capacity(192);
        // Writing to a String cannot fail.
        let _ = write!(line, "{time} INFO call method=");
        push_word(&mut line, method);
        if let Some(nodes) = forwarded_to {
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
        // The caller disconnected before the end of the answer.
        self.end(Code::Cancelled);
    }
}

/// Appends bytes that the caller chose: harmless ones as they are, others quoted.
fn push_word(line: &mut String, word: &str) {
    let plain = |b: u8| b.is_ascii_graphic() && b != b'"' && b != b'\\';
    if word.len() <= MAX_METHOD_BYTES && word.bytes().all(plain) {
        line.push_str(word);
    } else {
        let cut: String = word.chars().take(MAX_METHOD_BYTES).collect();
        let _ = write!(line, "{cut:?}");
    }
}

/// The names of gRPC's specification.
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
