//! The log line of each call: method, caller, peer, status code, duration. Lines that repeat each
//! other are folded, except those of the audit log.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use mainstay_identity::{Role, Rule, rule};
use mainstay_journal::Timestamp;
use tonic::Code;

use crate::connection::{CallGuard, Connection};
use crate::log::{Lines, Repeatable};

/// Longer paths are cut in the log: they are the caller's text.
const MAX_METHOD_BYTES: usize = 128;
/// The method of folded lines about methods without a rule, whose names are the caller's text.
const UNLISTED: &str = "(unlisted)";

/// The logs that calls are written to.
#[derive(Debug)]
pub(super) struct CallLogs {
    pub(super) requests: Lines,
    pub(super) audit: Lines,
    pub(super) denied: Lines,
}

/// The kind of a call, which decides the logs of its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It changes nothing and reads no secrets.
    Reading,
    /// It is audited, whatever its result.
    Audited,
    /// It is audited if it succeeds. Every reader may call it, and a failure has no effect: it is
    /// logged like a refusal.
    AuditedSuccess,
    /// It is refused before it begins.
    Refused,
}

impl Kind {
    pub(super) fn of(rule: Rule) -> Self {
        match (rule.audited, rule.role) {
            (false, _) => Self::Reading,
            (true, Role::Reader) => Self::AuditedSuccess,
            (true, _) => Self::Audited,
        }
    }
}

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
    logs: Arc<CallLogs>,
    kind: Kind,
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

    pub(super) fn into_log(self, logs: Arc<CallLogs>, kind: Kind) -> CallLog {
        CallLog {
            record: self,
            logs,
            kind,
            ended: false,
        }
    }
}

impl CallLog {
    pub(super) fn method(&self) -> &str {
        self.record.method()
    }

    pub(super) fn end(&mut self, code: Code) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let time = Timestamp::now();
        let took = self.record.began.elapsed();
        let mut key = self.record.words(code);
        let length = key.len();
        // Connections that look alike, as those of the unix socket do, are not folded together.
        let _ = write!(key, " connection={}", self.record.connection.id);
        let words = &key[..length];
        let CallLogs {
            requests,
            audit,
            denied,
        } = &*self.logs;
        let mut line = Repeatable {
            kind: "INFO call",
            words,
            shared: words,
            key: &key,
            rest: None,
            took,
        };
        match (self.kind, code) {
            (Kind::Reading, Code::Ok) => requests.push_repeatable(time, &line),
            (Kind::Reading, _) => requests.push(time, line.single(time).as_bytes()),
            (Kind::Audited, _) | (Kind::AuditedSuccess, Code::Ok) => {
                requests.push(time, line.single(time).as_bytes());
                line.kind = "AUDIT call";
                audit.push(time, line.single(time).as_bytes());
            }
            (Kind::AuditedSuccess | Kind::Refused, _) => {
                let shared = self.record.shared_words(code);
                let rest = format!("method=(others) who=(others) code={}", code_name(code));
                (line.shared, line.key) = (&shared, &shared);
                line.rest = Some(&rest);
                requests.push_repeatable(time, &line);
                line.kind = "DENIED call";
                denied.push_repeatable(time, &line);
            }
        }
    }
}

impl Record {
    /// Returns the words of the call's own line.
    fn words(&self, code: Code) -> String {
        let mut words = String::with_capacity(160);
        words.push_str("method=");
        push_word(&mut words, &self.method);
        if let Some(nodes) = &self.forwarded_to {
            // Writing to a String cannot fail.
            let _ = write!(words, " nodes={nodes:?}");
        }
        let _ = write!(words, " {} code={}", self.who(), code_name(code));
        words
    }

    /// Returns the words that a refusal shares with others: a caller can choose the names of methods
    /// that do not exist and its own port, and must not choose the number of lines with them.
    fn shared_words(&self, code: Code) -> String {
        let method = match rule(&self.method).method {
            "*" => UNLISTED,
            method => method,
        };
        let who = match self.who().rsplit_once(':') {
            Some((who, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => who,
            _ => self.who(),
        };
        format!("method={method} {who} code={}", code_name(code))
    }

    fn who(&self) -> &str {
        let own = &self.connection.log_fields;
        self.forwarded_for.as_ref().unwrap_or(own)
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
        let mut cut: String = word.chars().take(MAX_METHOD_BYTES).collect();
        if cut.len() < word.len() {
            cut.push('…');
        }
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
