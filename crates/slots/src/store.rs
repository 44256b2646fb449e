//! The slots on disk: `slots/a/mainstay`, `slots/b/mainstay`, `slots/slots.json` and
//! `slots/incoming/` for what is being received.
//!
//! A binary is written to `incoming`, fsynced and renamed into its slot between two writes of the
//! record: before it, the slot is recorded as empty; after it, as filled. Whatever interrupts this,
//! the record names only slots whose binary is complete, and the current slot is never touched.

mod error;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use mainstay_records::{RecordError, sync_directory, write_durable};
use rustix::fs::{FlockOperation, flock};

use crate::record::RECORD_VERSION;
use crate::{
    Binary, Content, Digest, Image, ImageError, Installed, Origin, Outcome, SlotName, SlotRecord,
    Stamp, Switch, SwitchKind, Trial, VerifyingKey,
};

pub use error::{SlotsError, StateFormats};

const RECORD_FILE: &str = "slots.json";
const EXPECTED_FILE: &str = "expected.json";
const BINARY_FILE: &str = "mainstay";
const OWN_BINARY: &str = "/proc/self/exe";

/// The wish for a switch.
#[derive(Debug, Clone)]
pub struct Request {
    /// The sequence that asks.
    pub actor_id: String,
    /// Switch at the next start.
    pub staged: bool,
    /// The time within which the daemon must be healthy.
    pub deadline_seconds: u64,
}

/// A verified binary that waits in `incoming`; removed when dropped unless it was installed.
#[derive(Debug)]
pub struct Received {
    path: PathBuf,
    /// The binary.
    pub binary: Binary,
    /// The digest of the image's manifest.
    pub manifest: Digest,
}

impl Drop for Received {
    fn drop(&mut self) {
        // After an installation it is gone already.
        let _ = fs::remove_file(&self.path);
    }
}

/// The slots of a state directory.
#[derive(Debug, Clone)]
pub struct Slots {
    directory: PathBuf,
}

impl Slots {
    /// The slots in `state`. Nothing is created before it is needed.
    pub fn of(state: &Path) -> Self {
        Self {
            directory: state.join("slots"),
        }
    }

    /// The record; `None` on a node that was never upgraded.
    pub fn read(&self) -> Result<Option<SlotRecord>, SlotsError> {
        match mainstay_records::read(&self.record_file(), RECORD_VERSION) {
            Ok(record) => Ok(Some(record)),
            Err(RecordError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces the record.
    pub(crate) fn write(&self, record: &SlotRecord) -> Result<(), SlotsError> {
        let path = self.record_file();
        let written = mainstay_records::encode(record, RECORD_VERSION)
            .map_err(io::Error::from)
            .and_then(|bytes| write_durable(&path, &bytes, 0o600));
        written.map_err(|source| SlotsError::Write { path, source })
    }

    fn record_file(&self) -> PathBuf {
        self.directory.join(RECORD_FILE)
    }

    /// The binary of a slot.
    pub fn binary(&self, slot: SlotName) -> PathBuf {
        self.directory.join(slot.directory()).join(BINARY_FILE)
    }

    /// The directory for uploads and unpacked images.
    pub fn incoming(&self) -> Result<PathBuf, SlotsError> {
        let path = self.directory.join("incoming");
        make_directory(&path)?;
        Ok(path)
    }

    /// Removes what interrupted uploads and writes have left. Called when nothing is received.
    pub fn clean(&self) {
        let _ = fs::remove_dir_all(self.directory.join("incoming"));
        let files = [RECORD_FILE, EXPECTED_FILE];
        let _ = mainstay_records::remove_temporaries_of(&self.directory, &files);
    }

    /// Locks the slots against another start of the daemon; `None` if one has the lock.
    pub(crate) fn lock(&self) -> io::Result<Option<File>> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(self.directory.join("lock"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads and verifies the image at `path`, and extracts its binary.
    ///
    /// Without `force`, a binary that runs already is refused.
    pub fn receive(
        &self,
        path: &Path,
        keys: &[VerifyingKey],
        formats: StateFormats,
        force: bool,
    ) -> Result<Received, SlotsError> {
        let incoming = self.incoming()?;
        let image = Image::open(path, &incoming)?;
        image.verify_signature(keys)?;
        formats.check(image.claims())?;
        let target = incoming.join(BINARY_FILE);
        let _ = fs::remove_file(&target);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o700);
        let mut file = options.open(&target).map_err(|source| SlotsError::Write {
            path: target.clone(),
            source,
        })?;
        // Removes the file if the rest fails.
        let mut received = Received {
            path: target.clone(),
            binary: Binary {
                facts: image.claims().clone(),
                digest: image.digest(),
                size_bytes: 0,
            },
            manifest: image.digest(),
        };
        received.binary = image.extract(&mut file, &target)?;
        if !force {
            let own = File::open(OWN_BINARY).and_then(Digest::of_reader);
            if own.map_err(SlotsError::OwnBinary)? == received.binary.digest {
                return Err(SlotsError::SameBinary {
                    version: received.binary.facts.version.clone(),
                    digest: received.binary.digest,
                });
            }
        }
        Ok(received)
    }

    /// Checks that what was received is still what was verified.
    pub fn check(&self, received: &Received) -> Result<(), SlotsError> {
        let found = File::open(&received.path).and_then(Digest::of_reader);
        let found = found.map_err(ImageError::Read)?;
        if found != received.binary.digest {
            return Err(SlotsError::Image(ImageError::WrongDigest {
                subject: "the binary",
                expected: received.binary.digest,
                found,
            }));
        }
        Ok(())
    }

    /// Writes the received binary to the idle slot and records a trial of it.
    ///
    /// On a node without slots, the running binary becomes slot A first.
    pub fn install(
        &self,
        received: &Received,
        request: &Request,
    ) -> Result<SlotRecord, SlotsError> {
        let mut record = self.read_or_found()?;
        refuse_running_trial(&record, SwitchKind::Upgrade)?;
        let slot = record.current.other();
        let origin = Origin::Image {
            manifest: received.manifest,
        };
        // A trial that was staged in this slot is replaced.
        record.trial = None;
        self.fill(&mut record, slot, &received.path, &received.binary, origin)?;
        record.trial = Some(trial(slot, SwitchKind::Upgrade, request));
        self.write(&record)?;
        Ok(record)
    }

    /// Records a trial of the slot that is not the current one.
    pub fn roll_back(
        &self,
        formats: StateFormats,
        request: &Request,
    ) -> Result<SlotRecord, SlotsError> {
        let mut record = self.other_slot(formats)?;
        let slot = record.current.other();
        record.trial = Some(trial(slot, SwitchKind::Rollback, request));
        self.write(&record)?;
        Ok(record)
    }

    /// Checks that there is a slot to roll back to. Returns the record.
    pub fn other_slot(&self, formats: StateFormats) -> Result<SlotRecord, SlotsError> {
        let none = |reason: &str| SlotsError::NoOtherSlot(reason.to_owned());
        let record = self.read()?;
        let record = record.ok_or_else(|| none("this node was never upgraded"))?;
        refuse_running_trial(&record, SwitchKind::Rollback)?;
        let slot = record.current.other();
        let content = record.content(slot);
        let content = content.ok_or_else(|| none(&format!("slot {slot} is empty")))?;
        formats.check(&content.binary.facts)?;
        self.verify(slot, content)
            .map_err(SlotsError::NoOtherSlot)?;
        Ok(record)
    }

    /// Compares the binary of a slot with its record. Returns what is wrong.
    pub(crate) fn verify(&self, slot: SlotName, content: &Content) -> Result<(), String> {
        let found = File::open(self.binary(slot)).and_then(Digest::of_reader);
        match found {
            Ok(found) if found == content.binary.digest => Ok(()),
            Ok(found) => Err(format!(
                "the binary in slot {slot} is corrupt, its digest is {found}"
            )),
            Err(error) => Err(format!("cannot read the binary in slot {slot}: {error}")),
        }
    }

    /// Removes a trial that has not begun.
    pub fn cancel_trial(&self) -> Result<(), SlotsError> {
        let Some(mut record) = self.read()? else {
            return Ok(());
        };
        if record
            .trial
            .as_ref()
            .is_some_and(|trial| trial.tries_left > 0)
        {
            record.trial = None;
            self.write(&record)?;
        }
        Ok(())
    }

    /// The result of the trial that the sequence `actor_id` asked for, once there is one.
    pub fn outcome(&self, actor_id: &str) -> Result<Option<Outcome>, SlotsError> {
        let last = self.read()?.and_then(|record| record.last);
        let own = last.filter(|last| last.trial.actor_id == actor_id);
        Ok(own.map(|last| last.outcome))
    }

    /// The last switch, if no daemon has reported it.
    pub fn unreported(&self) -> Result<Option<Switch>, SlotsError> {
        let last = self.read()?.and_then(|record| record.last);
        Ok(last.filter(|last| !last.reported))
    }

    /// Remembers that the last switch was reported.
    pub fn mark_reported(&self) -> Result<(), SlotsError> {
        let Some(mut record) = self.read()? else {
            return Ok(());
        };
        if let Some(last) = &mut record.last {
            last.reported = true;
        }
        self.write(&record)
    }

    /// The record, or a new one whose slot A is the running binary.
    fn read_or_found(&self) -> Result<SlotRecord, SlotsError> {
        if let Some(record) = self.read()? {
            return Ok(record);
        }
        let incoming = self.incoming()?;
        let copy = incoming.join("installed");
        let binary = self.copy_own(&copy)?;
        let identity = identity(Path::new(OWN_BINARY)).map_err(SlotsError::OwnBinary)?;
        let mut record = SlotRecord {
            current: SlotName::A,
            a: None,
            b: None,
            installed: Some(Installed {
                digest: binary.digest,
                identity,
            }),
            trial: None,
            last: None,
        };
        // The directory of the slot, its binary, and only then the first record: before it, the
        // node runs the installed binary.
        self.place(SlotName::A, &copy)?;
        record.a = Some(content(binary, Origin::Installed));
        self.write(&record)?;
        Ok(record)
    }

    /// The installed binary, replaced by the package manager, becomes the current slot; the slot
    /// that was current is kept for a rollback.
    pub(crate) fn adopt_own(&self, record: &mut SlotRecord) -> Result<(), SlotsError> {
        let incoming = self.incoming()?;
        let copy = incoming.join("installed");
        let binary = self.copy_own(&copy)?;
        let identity = identity(Path::new(OWN_BINARY)).map_err(SlotsError::OwnBinary)?;
        let slot = record.current.other();
        record.trial = None;
        let installed = Installed {
            digest: binary.digest,
            identity,
        };
        self.fill(record, slot, &copy, &binary, Origin::Installed)?;
        record.installed = Some(installed);
        record.current = slot;
        self.write(record)
    }

    /// Copies the running binary to `copy` and fsyncs it.
    fn copy_own(&self, copy: &Path) -> Result<Binary, SlotsError> {
        let mut own = File::open(OWN_BINARY).map_err(SlotsError::OwnBinary)?;
        let facts = Stamp::find(&own).map_err(SlotsError::OwnBinary)?;
        let facts = facts.ok_or(SlotsError::OwnStamp)?;
        io::Seek::rewind(&mut own).map_err(SlotsError::OwnBinary)?;
        let write = |source| SlotsError::Write {
            path: copy.to_owned(),
            source,
        };
        let _ = fs::remove_file(copy);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o700);
        let mut file = options.open(copy).map_err(write)?;
        let copied = io::copy(&mut own, &mut file).and_then(|_| file.sync_all());
        if let Err(source) = copied {
            let _ = fs::remove_file(copy);
            return Err(write(source));
        }
        io::Seek::rewind(&mut file).map_err(write)?;
        let digest = Digest::of_reader(&file).map_err(write)?;
        let size_bytes = file.metadata().map_err(write)?.len();
        Ok(Binary {
            facts,
            digest,
            size_bytes,
        })
    }

    /// Empties the slot in the record, moves the binary there, and fills it in the record. The last
    /// change is written by the caller.
    fn fill(
        &self,
        record: &mut SlotRecord,
        slot: SlotName,
        binary_file: &Path,
        binary: &Binary,
        origin: Origin,
    ) -> Result<(), SlotsError> {
        *record.content_mut(slot) = None;
        self.write(record)?;
        self.place(slot, binary_file)?;
        *record.content_mut(slot) = Some(content(binary.clone(), origin));
        Ok(())
    }

    /// Moves a complete, fsynced file into a slot.
    fn place(&self, slot: SlotName, file: &Path) -> Result<(), SlotsError> {
        let target = self.binary(slot);
        let directory = self.directory.join(slot.directory());
        make_directory(&directory)?;
        let placed = fs::rename(file, &target)
            .and_then(|()| sync_directory(&directory))
            .and_then(|()| sync_directory(&self.directory));
        placed.map_err(|source| SlotsError::Write {
            path: target,
            source,
        })
    }

    /// The slot that this process was started from.
    pub fn own_slot(&self) -> Option<SlotName> {
        let own = fs::metadata(OWN_BINARY).ok()?;
        [SlotName::A, SlotName::B].into_iter().find(|slot| {
            fs::metadata(self.binary(*slot))
                .is_ok_and(|it| (it.dev(), it.ino()) == (own.dev(), own.ino()))
        })
    }

    /// Records the workloads that a daemon on trial must find.
    pub fn write_expected(&self, workloads: &[String]) -> Result<(), SlotsError> {
        let path = self.directory.join(EXPECTED_FILE);
        let written = serde_json::to_vec(workloads)
            .map_err(io::Error::from)
            .and_then(|bytes| write_durable(&path, &bytes, 0o600));
        written.map_err(|source| SlotsError::Write { path, source })
    }

    /// The workloads that a daemon on trial must find; none if nothing was recorded.
    pub fn expected(&self) -> Vec<String> {
        let bytes = fs::read(self.directory.join(EXPECTED_FILE)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    pub(crate) fn forget_expected(&self) {
        let _ = fs::remove_file(self.directory.join(EXPECTED_FILE));
    }
}

fn refuse_running_trial(record: &SlotRecord, wanted: SwitchKind) -> Result<(), SlotsError> {
    match &record.trial {
        Some(trial) if !trial.staged || trial.tries_left == 0 => Err(SlotsError::TrialPending {
            wanted,
            slot: trial.slot,
            version: record.version(trial.slot),
        }),
        _ => Ok(()),
    }
}

fn trial(slot: SlotName, kind: SwitchKind, request: &Request) -> Trial {
    Trial {
        slot,
        tries_left: 1,
        kind,
        actor_id: request.actor_id.clone(),
        staged: request.staged,
        deadline_seconds: request.deadline_seconds,
        verified_by: own_process(),
    }
}

fn content(binary: Binary, origin: Origin) -> Content {
    Content {
        binary,
        origin,
        written: jiff::Timestamp::now().to_string(),
    }
}

/// Device, inode, size and times of a file, as text.
pub(crate) fn identity(path: &Path) -> io::Result<String> {
    let it = fs::metadata(path)?;
    Ok(format!(
        "{}:{}:{}:{}.{:09}:{}.{:09}",
        it.dev(),
        it.ino(),
        it.size(),
        it.mtime(),
        it.mtime_nsec(),
        it.ctime(),
        it.ctime_nsec()
    ))
}

/// This process, which stays the same when it executes another binary: boot, PID and start time.
/// Empty if it cannot be read.
pub(crate) fn own_process() -> String {
    let read = || {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The 22nd field; the second, in parentheses, may contain spaces.
        let started = stat
            .rsplit(')')
            .next()?
            .split_whitespace()
            .nth(19)?
            .to_owned();
        Some(format!("{} {} {started}", boot.trim(), std::process::id()))
    };
    read().unwrap_or_default()
}

fn make_directory(path: &Path) -> Result<(), SlotsError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| SlotsError::Write {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
