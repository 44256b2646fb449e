//! Starting an executable: in a cell whose first process is there, or made for it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::cell::{Cell, Shim};
use super::error::CellError;
use super::places::{SHIM_GROUPS, executable_group, open_directory, shim_group};
use super::turns::StartTurn;
use super::{Inner, blocking, lock, programs};
use crate::cgroup::{CgroupError, Cgroups};
use crate::frame;
use crate::limits::Limits;
use crate::name::{CellName, ExecutableName};
use crate::record::{ExecutableRecord, Run};
use crate::shim::Birth;
use crate::shim::protocol::{Reply, Request, StartRequest, Step};
use crate::spec::{ExecutableSpec, shown};

/// How many executables a cell remembers, those that have ended included.
const MOST_EXECUTABLES: usize = 16_384;
/// A start takes milliseconds; a shim that takes longer than this is stuck.
const LONGEST_START: Duration = Duration::from_secs(20);

pub(super) async fn start(
    inner: Arc<Inner>,
    name: CellName,
    executable: ExecutableName,
    spec: ExecutableSpec,
) -> Result<Run, CellError> {
    spec.check()?;
    let cell = inner.find(&name)?;
    let Some(turn) = StartTurn::take(&cell, &executable).await else {
        return Err(CellError::Running {
            cell: name,
            executable,
        });
    };
    if !cell.is_there() {
        return Err(CellError::NoSuchCell { cell: name });
    }
    blocking(&name, move || {
        let starting = Starting {
            inner: &inner,
            cell: &cell,
            executable,
            spec,
        };
        let started = starting.run();
        drop(turn);
        started
    })
    .await
}

struct Starting<'a> {
    inner: &'a Inner,
    cell: &'a Arc<Cell>,
    executable: ExecutableName,
    spec: ExecutableSpec,
}

impl Starting<'_> {
    fn run(self) -> Result<Run, CellError> {
        // Whether it runs already is for the shim to say, which knows it first.
        let groups = self.inner.cgroups()?;
        let group = executable_group(self.cell.name(), &self.executable);
        match groups.create_anew(&group, &Limits::default()) {
            // What the run before has left in it stays with its name.
            Ok(()) | Err(CgroupError::Exists { .. }) => {}
            Err(error) => return Err(CellError::Cgroup(error)),
        }
        let started = self.ask(groups, &group);
        if started.is_err() {
            // Nothing is in it, unless something of an earlier run is.
            let _ = groups.remove_members(&group);
        }
        let record = started?;
        let run = record.run;
        // As the shim has written it: whoever asks next need not wait for it to be read.
        self.inner.take(self.cell, record);
        self.forget_oldest();
        self.inner.remove_groups_left(self.cell);
        Ok(run)
    }

    /// A cell in which one executable after the other is started is not filled up by those that
    /// have ended.
    fn forget_oldest(&self) {
        let oldest = {
            let mut state = self.cell.state();
            if state.executables.len() <= MOST_EXECUTABLES {
                return;
            }
            let ended = state.executables.values().filter_map(|record| {
                let end = record.run.end?;
                Some((end.at, record.name.clone()))
            });
            let Some((_, oldest)) = ended.min() else {
                return;
            };
            state.executables.remove(&oldest);
            state.told.remove(&oldest);
            oldest
        };
        if let Err(error) = self.inner.places.forget(self.cell.name(), &oldest) {
            tracing::warn!(cell = %self.cell.name(), %error, "an old executable is not forgotten");
        }
    }

    fn ask(&self, groups: &Cgroups, group: &str) -> Result<ExecutableRecord, CellError> {
        if groups.is_full(group) {
            return Err(self.too_many());
        }
        let entry = groups.entry(group).map_err(CellError::Cgroup)?;
        let memory = groups.memory_kills(self.cell.name().as_str());
        let limits = *lock(&self.inner.logs_limits);
        let record = &self.cell.record;
        let program =
            programs::program(&record.spec, self.hostname(), &self.spec, self.inner.users)?;
        let request = Request::Start(Box::new(StartRequest {
            name: self.executable.clone(),
            spec: self.spec.clone(),
            program,
            log_file_bytes: limits.file_bytes,
            log_total_bytes: limits.total_bytes,
            unified: entry.unified.is_some(),
            procs: entry.procs.len(),
            counts_memory_kills: memory.is_some(),
        }));
        let files = entry.unified.iter().chain(&entry.procs).chain(&memory);
        let fds: Vec<BorrowedFd<'_>> = files.map(AsFd::as_fd).collect();
        self.ensure_shim(groups)?;
        let answer = match self.call(&request, &fds) {
            // A shim that ended meanwhile is replaced, once.
            Err(_) if self.shim_is_gone() => {
                self.ensure_shim(groups)?;
                self.call(&request, &fds)
            }
            answer => answer,
        };
        self.understand(answer.map_err(|source| CellError::Silent {
            cell: self.cell.name().clone(),
            source,
        })?)
    }

    /// Whoever watches over it may have noticed first.
    fn shim_is_gone(&self) -> bool {
        self.inner.forget_dead_shim(self.cell) || self.cell.state().shim.is_none()
    }

    fn call(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> io::Result<Reply> {
        let stream = self.inner.places.connect(self.cell.name())?;
        stream.set_read_timeout(Some(LONGEST_START))?;
        stream.set_write_timeout(Some(LONGEST_START))?;
        frame::send(&stream, request, fds)?;
        let (reply, _) = frame::receive(&stream)?.ok_or(io::ErrorKind::ConnectionReset)?;
        Ok(reply)
    }

    fn ensure_shim(&self, groups: &Cgroups) -> Result<(), CellError> {
        if self.cell.state().shim.is_some() {
            return Ok(());
        }
        let name = self.cell.name();
        let records = |source| CellError::Records {
            cell: name.clone(),
            source,
        };
        let group = shim_group(name);
        groups
            .create_outer(SHIM_GROUPS)
            .map_err(CellError::Cgroup)?;
        match groups.create_anew(&group, &Limits::default()) {
            Ok(()) | Err(CgroupError::Exists { .. }) => {}
            Err(error) => return Err(CellError::Cgroup(error)),
        }
        let entry = groups.members_entry(&group).map_err(CellError::Cgroup)?;
        let places = &self.inner.places;
        let control: OwnedFd = places.listen(name).map_err(records)?.into();
        let executables = open_directory(&places.executables).map_err(records)?;
        let logs = open_directory(&places.logs).map_err(records)?;
        let birth = Birth {
            cell: name.clone(),
            hostname: self.hostname().to_owned(),
            share: self.cell.record.spec.share.clone(),
            unified: entry.unified.is_some(),
            procs: entry.procs.len(),
        };
        let mut fds = vec![control.as_fd(), executables.as_fd(), logs.as_fd()];
        fds.extend(entry.unified.iter().chain(&entry.procs).map(AsFd::as_fd));
        let born = self.inner.zygote.birth(&birth, &fds);
        let born = born.map_err(|source| CellError::NotBorn {
            cell: name.clone(),
            source,
        })?;
        self.inner.adopt_shim(
            self.cell,
            Shim {
                pid: born.pid,
                pidfd: born.pidfd,
            },
        );
        Ok(())
    }

    fn hostname(&self) -> &str {
        let record = &self.cell.record;
        let asked = record.spec.hostname.as_deref();
        asked.unwrap_or_else(|| record.name.label())
    }

    fn understand(&self, reply: Reply) -> Result<ExecutableRecord, CellError> {
        let cell = || self.cell.name().clone();
        match reply {
            Reply::Started(record) => Ok(*record),
            Reply::Running => Err(self.running()),
            Reply::NotStarted { step, errno } => {
                Err(self.not_started(step, io::Error::from_raw_os_error(errno)))
            }
            Reply::NotIsolated { what, errno } => Err(CellError::NotIsolated {
                cell: cell(),
                what,
                source: io::Error::from_raw_os_error(errno),
            }),
            Reply::Failed { what } => Err(CellError::Shim { cell: cell(), what }),
        }
    }

    fn running(&self) -> CellError {
        CellError::Running {
            cell: self.cell.name().clone(),
            executable: self.executable.clone(),
        }
    }

    fn too_many(&self) -> CellError {
        CellError::TooManyProcesses {
            cell: self.cell.name().clone(),
        }
    }

    fn not_started(&self, step: Step, source: io::Error) -> CellError {
        let path = || shown(self.spec.words.first().map_or("", String::as_str));
        let step = match (step, source.kind()) {
            (Step::Execute, io::ErrorKind::NotFound) => {
                return CellError::ProgramNotFound { path: path() };
            }
            (Step::Execute, io::ErrorKind::PermissionDenied) => {
                return CellError::ProgramForbidden { path: path() };
            }
            (Step::Execute, _) => {
                return CellError::NotExecutable {
                    path: path(),
                    source,
                };
            }
            (Step::WorkingDirectory, _) => {
                let path = shown(self.spec.working_directory.as_deref().unwrap_or_default());
                return CellError::WorkingDirectory { path, source };
            }
            (Step::Fork, io::ErrorKind::WouldBlock) => return self.too_many(),
            (Step::Fork, _) => "fork",
            (Step::Group, _) => "enter its control group",
            (Step::Users, _) => "have users of its own",
            (Step::Input, _) => "connect its output",
            (Step::Identity, _) => "become another user",
            (Step::Capabilities, _) => "drop capabilities",
            (Step::Seccomp, _) => "filter system calls",
        };
        CellError::NotStarted {
            cell: self.cell.name().clone(),
            executable: self.executable.clone(),
            step,
            source,
        }
    }
}
