//! How a command fails: one clear line, and an exit code that scripts can tell apart.

use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use mainstay_api::common::Metadata;
use mainstay_identity::tls::explain;
use tonic::{Code, Status};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Failed,
    Usage,
    Unreachable,
    Tls,
    Refused,
    NotFound,
    NotServed,
    /// Some nodes answered, others did not.
    Partial,
    Timeout,
    /// As a shell tells an end by SIGINT.
    Interrupted,
    /// As a shell tells an end by SIGTERM.
    Terminated,
    /// What a program ended with that was run on the node.
    Program(u8),
}

impl Exit {
    /// Documented in docs/cli.md; a number never changes its meaning.
    pub fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::Tls => 4,
            Self::Refused => 5,
            Self::NotFound => 6,
            Self::NotServed => 7,
            Self::Partial => 8,
            Self::Timeout => 9,
            Self::Interrupted => 130,
            Self::Terminated => 143,
            Self::Program(code) => code,
        }
    }

    /// What a call that ended with `code` means to a script.
    pub fn of(code: Code) -> Self {
        match code {
            Code::InvalidArgument | Code::OutOfRange => Self::Usage,
            Code::Unavailable => Self::Unreachable,
            Code::PermissionDenied | Code::Unauthenticated => Self::Refused,
            Code::NotFound => Self::NotFound,
            Code::Unimplemented => Self::NotServed,
            Code::DeadlineExceeded => Self::Timeout,
            _ => Self::Failed,
        }
    }
}

#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    pub message: String,
    said: Said,
}

/// Whether there is still something to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    No,
    /// All of it has been told already.
    Yes,
    /// The reader of our output has gone: nothing to say, nothing wrong.
    ToNobody,
}

pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            said: Said::No,
        }
    }

    /// Ends with this code; what there was to say has been said.
    pub fn told(exit: Exit) -> Self {
        Self {
            said: Said::Yes,
            ..Self::new(exit, "")
        }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// What a node that was asked through another failed with.
    pub fn of_node(told: &Metadata) -> Self {
        let code = told
            .status
            .as_ref()
            .map(|status| Code::from_i32(status.code));
        Self::new(code.map_or(Exit::Failed, Exit::of), &told.error)
    }

    /// `error` with everything that caused it, on one line.
    pub fn caused(exit: Exit, error: &dyn std::error::Error) -> Self {
        Self::new(exit, chain(error))
    }

    pub fn report(&self) -> ExitCode {
        match self.said {
            Said::ToNobody => return ExitCode::SUCCESS,
            Said::Yes => {}
            Said::No => tell(&self.message),
        }
        ExitCode::from(self.exit.code())
    }
}

/// Something that failed, though the command goes on with the rest.
pub fn tell(message: &str) {
    say("error", AnsiColor::Red, message);
}

/// Something the user should know, though the command goes on.
pub fn warn(message: &str) {
    say("warning", AnsiColor::Yellow, message);
}

fn say(label: &str, colour: AnsiColor, message: &str) {
    let style = Style::new().bold().fg_color(Some(colour.into()));
    anstream::eprintln!("{style}{label}:{style:#} {message}");
}

/// An error and its sources, joined by colons, without saying anything twice.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let more = source.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = source.source();
    }
    text
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        if let Some(why) = explain(&status) {
            return Self::new(Exit::Tls, why);
        }
        // The node never answered: the words are those of the libraries below, the cause is last.
        if let Some(lost) = std::error::Error::source(&status) {
            let why = chain(lost);
            let message = format!("the connection to the node was lost: {why}");
            return Self::new(Exit::Unreachable, message);
        }
        let exit = Exit::of(status.code());
        let message = match status.message() {
            "" => format!("the node answered {:?}", status.code()),
            text => text.to_owned(),
        };
        Self::new(exit, message)
    }
}

impl From<mainstay_identity::PkiError> for Failure {
    fn from(error: mainstay_identity::PkiError) -> Self {
        Self::caused(Exit::Failed, &error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let said = match error.kind() {
            std::io::ErrorKind::BrokenPipe => Said::ToNobody,
            _ => Said::No,
        };
        Self {
            said,
            ..Self::new(Exit::Failed, error.to_string())
        }
    }
}
