//! Start: runs an executable in a cell, whose shim is forked if there is none.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::caller::Caller;
use super::cell::{Cell, Published, ShimProcess};
use super::cgroup_names::{SHIMS, executable_cgroup, shim_cgroup};
use super::error::CellError;
use super::paths::open_directory;
use super::permits::StartPermit;
use super::{Inner, blocking, lock, program, shim_call, shim_exit};
use crate::cgroup::{CgroupError, Cgroups};
use crate::limits::Limits;
use crate::name::{CellName, ExecutableName};
use crate::record::{ExecutableRecord, Run};
use crate::seccomp::Profile;
use crate::shim::ShimSpec;
use crate::shim::protocol::{self, Program, Reply, Request, StartRequest, Step};
use crate::spec::{ExecutableSpec, shown};

/// Beyond this number of executables in a cell the one that ended first is removed.
const MAX_EXECUTABLES: usize = 16_384;
/// A start takes milliseconds; a shim that takes longer than this is stuck.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Shims that one start may outlive.
const MAX_SHIMS: usize = 3;

pub(super) async fn start(
    inner: Arc<Inner>,
    caller: Caller,
    name: CellName,
    executable: ExecutableName,
    spec: ExecutableSpec,
) -> Result<Run, CellError> {
    spec.check()?;
    let cell = inner.find(&name)?;
    let permit = StartPermit::acquire(&cell, &executable);
    let Some(permit) = caller.wait(&name, permit).await? else {
        return Err(CellError::AlreadyRunning {
            cell: name,
            executable,
        });
    };
    if !cell.is_ready() {
        return Err(CellError::NoSuchCell { cell: name });
    }
    blocking(&name, move || {
        let starting = Starting {
            inner: &inner,
            cell: &cell,
            executable,
            spec,
        };
        let started = caller.check(cell.name()).and_then(|()| starting.run());
        drop(permit);
        started
    })
    .await
}

/// Returns whether an error says that the peer has closed its socket, as a dying process does.
fn is_disconnect(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionRefused | ConnectionReset | NotFound | UnexpectedEof
    )
}

struct Starting<'a> {
    inner: &'a Inner,
    cell: &'a Arc<Cell>,
    executable: ExecutableName,
    spec: ExecutableSpec,
}

impl Starting<'_> {
    fn run(self) -> Result<Run, CellError> {
        // The shim says whether the executable is running already: it knows first.
        let cgroups = self.inner.cgroups()?;
        let program = self.program()?;
        // First: the shim isolates itself while the cgroup is created.
        self.ensure_shim(cgroups)?;
        let cgroup = executable_cgroup(self.cell.name(), &self.executable);
        if self.inner.unconfined {
            // In the hierarchies of limits that it has no more.
            let _ = cgroups.remove(&cgroup);
        }
        match cgroups.recreate(&cgroup, &self.spec.limits) {
            // Populated: processes left by the previous run stay with its name.
            Ok(()) | Err(CgroupError::Exists { .. }) => {}
            Err(error) => return Err(CellError::Cgroup(error)),
        }
        let started = self.request(cgroups, &cgroup, program);
        if started.is_err() {
            // Fails if processes of an earlier run are in it.
            let _ = match self.spec.limits.is_empty() {
                true => cgroups.remove_membership(&cgroup),
                false => cgroups.remove(&cgroup),
            };
        }
        let record = started?;
        let run = record.run;
        // From the reply, not from the file: the next call must see it without a wait.
        self.inner.apply_record(self.cell, record);
        self.remove_oldest();
        self.inner.remove_stale_cgroups(self.cell);
        Ok(run)
    }

    /// Removes the executable that ended first if there are too many.
    fn remove_oldest(&self) {
        let oldest = {
            let mut state = self.cell.state();
            if state.executables.len() <= MAX_EXECUTABLES {
                return;
            }
            let ended = state.executables.values().filter_map(|record| {
                let end = record.run.end?;
                // Not before its events are published.
                let published = state.published.get(&record.name);
                published.filter(|published| **published == Published::of(record))?;
                Some((end.at, record.name.clone()))
            });
            let Some((_, oldest)) = ended.min() else {
                return;
            };
            state.executables.remove(&oldest);
            state.published.remove(&oldest);
            oldest
        };
        if let Err(error) = self
            .inner
            .paths
            .remove_executable(self.cell.name(), &oldest)
        {
            tracing::warn!(cell = %self.cell.name(), %error, "cannot remove an old executable");
        }
    }

    fn program(&self) -> Result<Program, CellError> {
        let spec = &self.cell.record.spec;
        match self.inner.unconfined {
            true => program::resolve_unconfined(spec, &self.spec),
            false => program::resolve(spec, self.hostname(), &self.spec, self.inner.users),
        }
    }

    fn request(
        &self,
        cgroups: &Cgroups,
        cgroup: &str,
        program: Program,
    ) -> Result<ExecutableRecord, CellError> {
        if cgroups.pids_limit_reached(cgroup) {
            return Err(self.too_many());
        }
        let entry = cgroups.entry_fds(cgroup).map_err(CellError::Cgroup)?;
        let oom_kills = match self.spec.limits.is_empty() {
            true => cgroups.oom_kill_counter(self.cell.name().as_str()),
            false => cgroups.oom_kill_counter(cgroup),
        };
        let limits = *lock(&self.inner.logs_limits);
        let mut request = Request::Start(Box::new(StartRequest {
            // A shim of an earlier build would start it without what it asks for.
            version: match self.spec.is_attachable() {
                true => protocol::VERSION,
                false => protocol::VERSION_2,
            },
            name: self.executable.clone(),
            spec: self.spec.clone(),
            program,
            log_file_bytes: self.spec.log_file_bytes.unwrap_or(limits.file_bytes),
            log_total_bytes: self.spec.log_total_bytes.unwrap_or(limits.total_bytes),
            log_with_first_line: true,
            log_keep_free: self.inner.logs_keep_free.load(Ordering::Relaxed),
            unified: entry.unified.is_some(),
            procs: entry.procs.len(),
            counts_memory_kills: oom_kills.is_some(),
        }));
        let files = entry.unified.iter().chain(&entry.procs).chain(&oom_kills);
        let fds: Vec<BorrowedFd<'_>> = files.map(AsFd::as_fd).collect();
        // Until its record is known: a shim that dies meanwhile leaves files of it.
        let new = !self.cell.state().executables.contains_key(&self.executable);
        if new {
            let mut state = self.cell.state();
            state.unknown_files.insert(self.executable.clone());
        }
        let answered = self.call(cgroups, &mut request, &fds);
        // A shim that answers has removed what it created for an executable that never ran.
        if new && !matches!(answered, Err(CellError::ShimUnresponsive { .. })) {
            self.cell.state().unknown_files.remove(&self.executable);
        }
        answered
    }

    /// Sends the request; a shim that dies meanwhile is replaced.
    fn call(
        &self,
        cgroups: &Cgroups,
        request: &mut Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<ExecutableRecord, CellError> {
        let mut attempts = 1..=MAX_SHIMS;
        loop {
            attempts.next();
            self.ensure_shim(cgroups)?;
            self.set_filter(request)?;
            let paths = &self.inner.paths;
            match shim_call::call(paths, self.cell.name(), request, fds, START_TIMEOUT) {
                Ok(reply) => return self.interpret(reply),
                Err(error)
                    if !attempts.is_empty() && is_disconnect(&error) && self.shim_is_gone() => {}
                Err(source) => {
                    return Err(CellError::ShimUnresponsive {
                        cell: self.cell.name().clone(),
                        source,
                    });
                }
            }
        }
    }

    /// Names the built-in filter to a shim that has it, and sends it to any other.
    fn set_filter(&self, request: &mut Request) -> Result<(), CellError> {
        if self.inner.unconfined {
            return Ok(());
        }
        if let (Request::Start(start), Profile::Default) = (request, &self.spec.seccomp) {
            let shim = &self.cell.state().shim;
            let has_it = shim.as_ref().is_some_and(|shim| shim.own);
            start.program.builtin_filter = has_it;
            start.program.filter = match has_it {
                true => None,
                false => self.spec.seccomp.filter()?,
            };
        }
        Ok(())
    }

    /// Returns whether the shim has exited; the watch thread may have noticed first. Waits for the
    /// exit: a dying process closes its socket before its exit is visible.
    fn shim_is_gone(&self) -> bool {
        let pidfd = {
            let state = self.cell.state();
            let shim = state.shim.as_ref().map(|shim| shim.pidfd.try_clone());
            match shim {
                None => return true,
                Some(pidfd) => pidfd,
            }
        };
        if let Ok(pidfd) = pidfd {
            shim_exit::wait_for_exit(&pidfd, START_TIMEOUT);
        }
        self.inner.handle_shim_exit(self.cell) || self.cell.state().shim.is_none()
    }

    /// Forks the shim of the cell if there is none.
    fn ensure_shim(&self, cgroups: &Cgroups) -> Result<(), CellError> {
        if self.cell.state().shim.is_some() {
            return Ok(());
        }
        let name = self.cell.name();
        let records = |source| CellError::RecordIo {
            cell: name.clone(),
            source,
        };
        let cgroup = shim_cgroup(name);
        let roots = self.inner.keep_cgroup_roots();
        cgroups
            .create_inner_node(SHIMS)
            .map_err(CellError::Cgroup)?;
        match cgroups.recreate(&cgroup, &Limits::default()) {
            Ok(()) | Err(CgroupError::Exists { .. }) => {}
            Err(error) => return Err(CellError::Cgroup(error)),
        }
        drop(roots);
        let entry = cgroups.membership_fds(&cgroup).map_err(CellError::Cgroup)?;
        let paths = &self.inner.paths;
        let control: OwnedFd = paths.listen(name).map_err(records)?.into();
        let executables = open_directory(&paths.executables).map_err(records)?;
        let logs = open_directory(&paths.logs).map_err(records)?;
        let spec = ShimSpec {
            cell: name.clone(),
            allocated: self.cell.record.allocated,
            hostname: self.hostname().to_owned(),
            share: self.cell.record.spec.share.clone(),
            unified: entry.unified.is_some(),
            procs: entry.procs.len(),
            pid_max: self.inner.pid_max(&self.cell.record.spec),
            unconfined: self.inner.unconfined,
        };
        let mut fds = vec![control.as_fd(), executables.as_fd(), logs.as_fd()];
        fds.extend(entry.unified.iter().chain(&entry.procs).map(AsFd::as_fd));
        let forked = self.inner.zygote.fork_shim(&spec, &fds);
        let forked = forked.map_err(|source| CellError::NoShim {
            cell: name.clone(),
            source,
        })?;
        self.inner.watch_shim(
            self.cell,
            ShimProcess {
                pid: forked.pid,
                pidfd: forked.pidfd,
                own: true,
            },
        );
        Ok(())
    }

    fn hostname(&self) -> &str {
        let record = &self.cell.record;
        let requested = record.spec.hostname.as_deref();
        requested.unwrap_or_else(|| record.name.label())
    }

    fn interpret(&self, reply: Reply) -> Result<ExecutableRecord, CellError> {
        let cell = || self.cell.name().clone();
        match reply {
            // A shim of before versions ignores the version of a request, and has started it.
            Reply::Started(record) if self.spec.is_attachable() && !record.spec.is_attachable() => {
                let cgroup = executable_cgroup(self.cell.name(), &self.executable);
                self.inner
                    .cgroups()?
                    .kill(&cgroup)
                    .map_err(CellError::Cgroup)?;
                self.inner.apply_record(self.cell, *record);
                Err(CellError::EarlierShim {
                    cell: cell(),
                    what: "its protocol has no version".to_owned(),
                })
            }
            Reply::Started(record) => Ok(*record),
            Reply::Running => Err(self.running()),
            Reply::NotStarted { step, errno } => {
                Err(self.not_started(step, io::Error::from_raw_os_error(errno)))
            }
            Reply::NotIsolated { what, errno } => Err(CellError::NotIsolated {
                cell: cell(),
                operation: what,
                source: io::Error::from_raw_os_error(errno),
            }),
            Reply::Failed { what }
                if self.spec.is_attachable() && what.contains("protocol version") =>
            {
                Err(CellError::EarlierShim { cell: cell(), what })
            }
            Reply::Failed { what } => Err(CellError::ShimFailed { cell: cell(), what }),
            Reply::Reaped
            | Reply::Attached(_)
            | Reply::Ended
            | Reply::NotAttachable
            | Reply::TooManyAttachments => Err(CellError::ShimFailed {
                cell: cell(),
                what: "it sent the reply to another request".to_owned(),
            }),
        }
    }

    fn running(&self) -> CellError {
        CellError::AlreadyRunning {
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
                return CellError::ProgramNotPermitted { path: path() };
            }
            (Step::Execute, _) => {
                return CellError::ExecFailed {
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
            (Step::Group, _) => "enter its cgroup",
            (Step::Users, _) => "map its user namespace",
            (Step::Input, _) => "redirect its output",
            (Step::Identity, _) => "change its UID and GID",
            (Step::Capabilities, _) => "drop capabilities",
            (Step::Seccomp, _) => "install its seccomp filter",
        };
        CellError::NotStarted {
            cell: self.cell.name().clone(),
            executable: self.executable.clone(),
            step,
            source,
        }
    }
}
