//! Failures of a command: one line on stderr and an exit code that scripts can rely on.

use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use mainstay_client::format::{printable, printable_lines};
use mainstay_client::{ErrorKind, NodeError, chain};
use tonic::Status;

/// Exit codes of the command. A number never changes its meaning; `docs/cli.md` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Success,
    Failed,
    Usage,
    Unreachable,
    Tls,
    PermissionDenied,
    NotFound,
    Unimplemented,
    /// Some nodes answered, others failed.
    Partial,
    Timeout,
    NotExecutable,
    CommandNotFound,
    /// SIGINT, with the number a shell uses.
    Interrupted,
    /// SIGTERM, with the number a shell uses.
    Terminated,
    /// Exit code of the program that `mainstay run` ran.
    Program(u8),
}

impl Exit {
    /// Every exit code with a meaning of its own.
    pub const ALL: [Self; 14] = [
        Self::Success,
        Self::Failed,
        Self::Usage,
        Self::Unreachable,
        Self::Tls,
        Self::PermissionDenied,
        Self::NotFound,
        Self::Unimplemented,
        Self::Partial,
        Self::Timeout,
        Self::NotExecutable,
        Self::CommandNotFound,
        Self::Interrupted,
        Self::Terminated,
    ];

    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::Tls => 4,
            Self::PermissionDenied => 5,
            Self::NotFound => 6,
            Self::Unimplemented => 7,
            Self::Partial => 8,
            Self::Timeout => 9,
            Self::NotExecutable => 126,
            Self::CommandNotFound => 127,
            Self::Interrupted => 130,
            Self::Terminated => 143,
            Self::Program(code) => code,
        }
    }

    /// Returns the meaning in two or three words, as `mainstay --help` shows it.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failed => "failure",
            Self::Usage => "usage error",
            Self::Unreachable => "node unreachable",
            Self::Tls => "TLS or certificate error",
            Self::PermissionDenied => "permission denied",
            Self::NotFound => "not found",
            Self::Unimplemented => "not served by the node",
            Self::Partial => "some nodes failed",
            Self::Timeout => "timeout",
            Self::NotExecutable => "run: not executable",
            Self::CommandNotFound => "run: command not found",
            Self::Interrupted => "SIGINT",
            Self::Terminated => "SIGTERM",
            Self::Program(_) => "run: exit code of the program",
        }
    }
}

impl From<ErrorKind> for Exit {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Failed => Self::Failed,
            ErrorKind::Usage => Self::Usage,
            ErrorKind::Unreachable => Self::Unreachable,
            ErrorKind::Tls => Self::Tls,
            ErrorKind::PermissionDenied => Self::PermissionDenied,
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Unimplemented => Self::Unimplemented,
            ErrorKind::Timeout => Self::Timeout,
        }
    }
}

/// The end of a command that did not succeed.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    pub message: String,
    report: Report,
}

/// State of the message of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Report {
    Pending,
    /// Already on stderr.
    Printed,
    /// The reader of stdout closed it: no message, and success.
    BrokenPipe,
}

pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            report: Report::Pending,
        }
    }

    /// Creates a failure whose messages are already on stderr.
    pub fn printed(exit: Exit) -> Self {
        Self {
            report: Report::Printed,
            ..Self::new(exit, "")
        }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Creates a failure from an error and its causes.
    pub fn caused(exit: Exit, error: &dyn std::error::Error) -> Self {
        Self::new(exit, chain(error))
    }

    /// Creates a failure for a file that cannot be read, written or created.
    pub fn file(action: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        let path = path.display();
        Self::new(Exit::Failed, format!("cannot {action} {path}: {error}"))
    }

    /// Creates a failure of a write to stdout. A broken pipe is no error.
    pub fn stdout(error: std::io::Error) -> Self {
        Self::stream("stdout", error)
    }

    /// Creates a failure of a write to a stream. A broken pipe is no error.
    pub fn stream(name: &str, error: std::io::Error) -> Self {
        let message = format!("cannot write to {name}: {error}");
        Self {
            message,
            ..Self::from(error)
        }
    }

    /// Prints the message, unless that is done, and returns the exit code.
    pub fn report(&self) -> ExitCode {
        match self.report {
            Report::BrokenPipe => return ExitCode::from(Exit::Success.code()),
            Report::Printed => {}
            Report::Pending => print_error(&self.message),
        }
        ExitCode::from(self.exit.code())
    }
}

/// Prints an error to stderr.
pub fn print_error(message: &str) {
    print_labelled("error", AnsiColor::Red, message, "\n");
}

/// Prints a warning to stderr.
pub fn warn(message: &str) {
    warn_with_end(message, "\n");
}

/// Prints a warning to stderr with line ends for a terminal in raw mode.
pub fn warn_with_end(message: &str, end: &str) {
    print_labelled("warning", AnsiColor::Yellow, message, end);
}

/// Prints a note to stderr as [`warn_with_end`] does.
pub fn note_with_end(message: &str, end: &str) {
    print_labelled("note", AnsiColor::Cyan, message, end);
}

fn print_labelled(label: &str, colour: AnsiColor, message: &str, end: &str) {
    let style = Style::new().bold().fg_color(Some(colour.into()));
    // A message may quote a node; its control characters must not reach the terminal.
    let message = printable_lines(message);
    anstream::eprint!("{style}{label}:{style:#} {message}{end}");
}

/// Returns the remedy for an error in terms of the command line.
fn remedy(error: &mainstay_client::Error) -> Option<&'static str> {
    use mainstay_client::Error;
    use std::io::ErrorKind::{ConnectionRefused, NotFound};
    match error {
        Error::NoEndpoints(_) => Some("name one with -e HOST or add it with mainstay config add"),
        Error::NoCa(_) => Some("add one with mainstay config add --ca FILE"),
        Error::Connect { source, .. } if matches!(source.kind(), ConnectionRefused | NotFound) => {
            Some("is mainstay serving there?")
        }
        Error::Timeout(_) | Error::ConnectTimeout { .. } => Some("--timeout TIME waits longer"),
        _ => None,
    }
}

impl From<mainstay_client::Error> for Failure {
    fn from(error: mainstay_client::Error) -> Self {
        Self::from(&error)
    }
}

impl From<&mainstay_client::Error> for Failure {
    fn from(error: &mainstay_client::Error) -> Self {
        let mut message = chain(error);
        if matches!(error, mainstay_client::Error::Status { .. }) {
            // The node wrote it: on one line it cannot pass for other lines of this command.
            message = printable(&message);
        }
        if let Some(remedy) = remedy(error) {
            message = format!("{message}; {remedy}");
        }
        Self::new(error.kind().into(), message)
    }
}

impl From<NodeError> for Failure {
    fn from(failed: NodeError) -> Self {
        let failure = Self::from(&failed.error);
        let message = format!("node {}: {}", failed.node, failure.message);
        Self::new(failure.exit, message)
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        mainstay_client::Error::from(status).into()
    }
}

impl From<mainstay_identity::PkiError> for Failure {
    fn from(error: mainstay_identity::PkiError) -> Self {
        Self::caused(Exit::Failed, &error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let report = match error.kind() {
            std::io::ErrorKind::BrokenPipe => Report::BrokenPipe,
            _ => Report::Pending,
        };
        Self {
            report,
            ..Self::new(Exit::Failed, error.to_string())
        }
    }
}
