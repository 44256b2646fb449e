//! The size of a log with retention by time, compared with the limit where it would lose lines.

use mainstay_journal::{LogRetention, LogWriter};

/// Called on the writer's thread when a log with retention nears the size that limits it.
pub type Alarm = Box<dyn Fn(Fullness) + Send>;

/// The state of a log with retention that an administrator has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fullness {
    /// The log takes more than four fifths of its size limit.
    Filling { bytes: u64, max_bytes: u64 },
    /// Files were removed to stay within the limit, though younger than they are kept for.
    RemovedEarly { files: u64, max_bytes: u64 },
}

/// Compares the size of a log with its limit.
pub(super) struct SizeWatch {
    max_bytes: u64,
    alarm: Alarm,
    /// The alarm was raised and the log has not become smaller since.
    raised: bool,
}

impl SizeWatch {
    pub(super) fn new(retention: LogRetention, alarm: Alarm) -> Self {
        Self {
            max_bytes: retention.max_bytes,
            alarm,
            raised: false,
        }
    }

    pub(super) fn set_retention(&mut self, retention: LogRetention) {
        self.max_bytes = retention.max_bytes;
    }

    /// Raises the alarm if it is due.
    pub(super) fn check(&mut self, writer: &mut LogWriter) {
        let (bytes, max_bytes) = (writer.total_bytes(), self.max_bytes);
        let filling = bytes > max_bytes / 5 * 4;
        if filling && !self.raised {
            (self.alarm)(Fullness::Filling { bytes, max_bytes });
        }
        self.raised = filling;
        let files = writer.take_removed_early();
        if files > 0 {
            (self.alarm)(Fullness::RemovedEarly { files, max_bytes });
        }
    }
}
