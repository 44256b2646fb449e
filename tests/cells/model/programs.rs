//! The programs that callers run: one for each way to run and to exit.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Program {
    /// Is over at once.
    Exits,
    /// Says something first.
    Writes,
    /// Runs until it is asked to end.
    Sleeps,
    /// Runs until it is killed.
    Deaf,
    /// Runs until it is asked to end, and so do its children.
    Forks,
    /// Is over at once and leaves a child behind, in a session of its own.
    Daemonizes,
    /// Is not there.
    Missing,
    /// Is no program.
    Forbidden,
}

/// How a program has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum How {
    Code(i32),
    Signal(i32),
    Lost,
}

/// The number of lines of [`Program::Writes`].
pub(super) const LINES: usize = 40;

impl Program {
    pub(super) const ALL: [Self; 8] = [
        Self::Exits,
        Self::Writes,
        Self::Sleeps,
        Self::Deaf,
        Self::Forks,
        Self::Daemonizes,
        Self::Missing,
        Self::Forbidden,
    ];

    pub(super) fn command(self) -> &'static str {
        match self {
            Self::Exits => "sh -c 'exit 7'",
            Self::Writes => {
                "sh -c 'i=0; while [ $i -lt 40 ]; do echo line $i; i=$((i+1)); done; exit 9'"
            }
            Self::Sleeps => "sleep 1000",
            Self::Deaf => "sh -c 'trap \"\" TERM; sleep 1000; exit 1'",
            Self::Forks => "sh -c 'sleep 1000 & sleep 1000 & wait'",
            Self::Daemonizes => "sh -c 'setsid sleep 1000 & exit 4'",
            Self::Missing => "/no/such/program",
            Self::Forbidden => "/etc/passwd",
        }
    }

    pub(super) fn of(command: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|program| program.command() == command)
    }

    /// The exit status if nothing stops it; `None` if it runs on.
    pub(super) fn own_end(self) -> Option<How> {
        match self {
            Self::Exits => Some(How::Code(7)),
            Self::Writes => Some(How::Code(9)),
            Self::Daemonizes => Some(How::Code(4)),
            Self::Sleeps | Self::Deaf | Self::Forks | Self::Missing | Self::Forbidden => None,
        }
    }

    /// Whether it may have ended like this once it was asked to, which may have been too late, or
    /// before it was deaf.
    pub(super) fn asked_end(self, how: How) -> bool {
        const KILL: i32 = 9;
        const TERM: i32 = 15;
        match how {
            How::Signal(KILL | TERM) => true,
            // Its children may have ended a moment before itself.
            How::Code(0) => self == Self::Forks,
            how => self.own_end() == Some(how),
        }
    }
}
