//! Services that were stopped by request, on disk: the next daemon leaves them stopped.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;

use mainstay_error_chain::chain;
use mainstay_records::RecordError;
use serde::{Deserialize, Serialize};

use crate::ServiceName;

const VERSION: u64 = 1;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// State that a supervisor leaves to the next one of the same boot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Record {
    boot: String,
    stopped: BTreeSet<String>,
    /// Runs before this time, in nanoseconds, belong to an earlier life of the node: their ends mean
    /// nothing for what is started.
    fresh_since: i64,
}

#[derive(Debug)]
pub struct StoppedServices {
    path: PathBuf,
    record: Record,
}

impl StoppedServices {
    /// Reads the file of an earlier supervisor. After a reboot of the machine it says nothing.
    pub fn open(path: PathBuf) -> Self {
        let boot = fs::read_to_string(BOOT_ID).unwrap_or_default();
        let boot = boot.trim().to_owned();
        let record = match mainstay_records::read::<Record>(&path, VERSION) {
            Ok(record) if record.boot == boot => return Self { path, record },
            Ok(_) | Err(RecordError::NotFound { .. }) => Record::of(boot),
            Err(error) => {
                let error = chain(&error);
                tracing::error!(
                    error,
                    "cannot read which services were stopped; all are started"
                );
                Record::of(boot)
            }
        };
        let new = Self { path, record };
        if let Err(error) = new.write() {
            tracing::warn!(%error, "cannot note the boot that services belong to");
        }
        new
    }

    pub fn contains(&self, service: &ServiceName) -> bool {
        self.record.stopped.contains(service.as_str())
    }

    /// Returns whether a run that has ended counts for what follows.
    pub fn counts(&self, started: i64) -> bool {
        started >= self.record.fresh_since
    }

    /// Notes that a service is stopped, or is not any more. Blocks on the disk.
    pub fn set(&mut self, service: &ServiceName, stopped: bool) -> io::Result<()> {
        let changed = match stopped {
            true => self.record.stopped.insert(service.as_str().to_owned()),
            false => self.record.stopped.remove(service.as_str()),
        };
        match changed {
            true => self.write(),
            false => Ok(()),
        }
    }

    /// Forgets everything: what comes next starts as after a boot. Blocks on the disk.
    pub fn start_afresh(&mut self, now: i64) -> io::Result<()> {
        self.record.stopped.clear();
        self.record.fresh_since = now;
        self.write()
    }

    fn write(&self) -> io::Result<()> {
        let bytes = mainstay_records::encode(&self.record, VERSION)?;
        mainstay_records::write_runtime(&self.path, &bytes)
    }
}

impl Record {
    fn of(boot: String) -> Self {
        Self {
            boot,
            // Processes of an earlier boot have ended with it.
            fresh_since: mainstay_journal::Timestamp::now().as_nanos(),
            ..Self::default()
        }
    }
}
