//! From a shim to a program: born in its control group, stripped of power, executed.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::execve;
use rustix::fs::{Mode, OFlags, openat};
use rustix::process::{Pid, Resource, Rlimit, chdir, getrlimit, setrlimit};

use super::Host;
use super::protocol::{Program, Step, UserRange};
use crate::sys::{self, Forked};

/// What an executable is born into.
pub(super) struct Place {
    pub(super) unified: Option<OwnedFd>,
    pub(super) procs: Vec<OwnedFd>,
    pub(super) stdout: File,
    pub(super) stderr: File,
}

pub(super) struct Executed {
    /// In this cell.
    pub(super) pid: Pid,
    pub(super) host_pid: i32,
}

/// The step that failed, and how.
pub(super) type Failure = (Step, io::Error);

/// A program as the kernel takes it.
struct Prepared {
    paths: Vec<CString>,
    words: Vec<CString>,
    environment: Vec<CString>,
    working_directory: CString,
}

/// Returns once the program has taken over, or could not.
pub(super) fn execute(program: &Program, place: Place, host: &Host) -> Result<Executed, Failure> {
    let failed = |step| move |error: io::Error| (step, error);
    let prepared = Prepared::new(program).map_err(failed(Step::Execute))?;
    // Closed by the kernel when the program takes over; until then failures come through it.
    let (mut failures, report) = io::pipe().map_err(failed(Step::Fork))?;
    let (held, release) = io::pipe().map_err(failed(Step::Fork))?;
    let namespaces = program.users.map_or(0, |_| libc::CLONE_NEWUSER);
    let into = place.unified.as_ref().map(AsFd::as_fd);
    let forked = sys::fork_into(namespaces, into).map_err(failed(Step::Fork))?;
    let Forked::Parent { pid, pidfd } = forked else {
        drop((failures, release));
        let (step, error) = become_program(program, &prepared, place, held);
        tell(report, step, &error);
        sys::exit_now(127)
    };
    drop((report, place, held));
    if let Some(users) = program.users
        && let Err(error) = map_users(pid, users)
    {
        // Without its word to go on it ends; so does the fork.
        drop(release);
        wait_for(pid);
        return Err((Step::Users, error));
    }
    let host_pid = host_pid(host, &pidfd);
    let released = (&release).write_all(b"g");
    drop(release);
    let mut told = [0; 5];
    let failure = match released.and_then(|()| read_all(&mut failures, &mut told)) {
        Ok(0) => None,
        Ok(_) => {
            let [step, errno @ ..] = told;
            let error = io::Error::from_raw_os_error(i32::from_le_bytes(errno));
            Some((Step::from_number(step), error))
        }
        Err(error) => Some((Step::Fork, error)),
    };
    match (failure, host_pid) {
        (None, Ok(host_pid)) => Ok(Executed { pid, host_pid }),
        (Some(failure), _) => {
            wait_for(pid);
            Err(failure)
        }
        (None, Err(error)) => {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            wait_for(pid);
            Err((Step::Fork, error))
        }
    }
}

impl Prepared {
    fn new(program: &Program) -> io::Result<Self> {
        let all = |texts: &[String]| -> io::Result<Vec<CString>> {
            let text = |text: &String| Ok(CString::new(text.as_str())?);
            texts.iter().map(text).collect()
        };
        Ok(Self {
            paths: all(&program.paths)?,
            words: all(&program.words)?,
            environment: all(&program.environment)?,
            working_directory: CString::new(program.working_directory.as_str())?,
        })
    }
}

/// In the fork. Returns only what went wrong.
fn become_program(
    program: &Program,
    prepared: &Prepared,
    place: Place,
    held: PipeReader,
) -> Failure {
    match enter(program, prepared, place, held) {
        Err(failure) => failure,
        Ok(()) => (Step::Execute, run(prepared)),
    }
}

fn enter(
    program: &Program,
    prepared: &Prepared,
    place: Place,
    mut held: PipeReader,
) -> Result<(), Failure> {
    // The trees of version 1 know no birth in another group; nothing is executed before the move.
    for mut procs in place.procs.into_iter().map(File::from) {
        procs
            .write_all(b"0")
            .map_err(|error| (Step::Group, error))?;
    }
    let mut go = [0; 1];
    held.read_exact(&mut go)
        .map_err(|error| (Step::Users, error))?;
    sys::reset_signals().map_err(|error| (Step::Fork, error))?;
    let _ = rustix::process::setsid();
    take_stdio(place.stdout, place.stderr).map_err(|error| (Step::Input, error))?;
    if program.own_cgroups {
        unshare(CloneFlags::CLONE_NEWCGROUP).map_err(|errno| (Step::Group, errno.into()))?;
    }
    modest_descriptors();
    chdir(&prepared.working_directory).map_err(|errno| (Step::WorkingDirectory, errno.into()))?;
    take_identity(program)
}

fn take_stdio(stdout: File, stderr: File) -> io::Result<()> {
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    rustix::stdio::dup2_stdout(stdout)?;
    rustix::stdio::dup2_stderr(stderr)?;
    Ok(())
}

/// The daemon may have many files open; programs that use `select` break when theirs are numbered
/// beyond 1024, and can raise the limit themselves.
fn modest_descriptors() {
    const USUAL: u64 = 1024;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current > USUAL) {
        let current = Some(limit.maximum.map_or(USUAL, |most| most.min(USUAL)));
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}

fn take_identity(program: &Program) -> Result<(), Failure> {
    use rustix::process::{Gid, Uid};
    use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
    let mut changed = Ok(());
    let change_user = || {
        changed = set_thread_groups(&[])
            .and_then(|()| set_thread_gid(Gid::from_raw(program.gid)))
            .and_then(|()| set_thread_uid(Uid::from_raw(program.uid)));
        changed
    };
    let dropped = program.capabilities.drop_to(change_user);
    changed.map_err(|errno| (Step::Identity, errno.into()))?;
    dropped.map_err(|errno| (Step::Capabilities, errno.into()))?;
    if !program.new_privileges {
        rustix::thread::set_no_new_privs(true)
            .map_err(|errno| (Step::Capabilities, errno.into()))?;
    }
    if let Some(filter) = &program.filter {
        filter
            .install()
            .map_err(|errno| (Step::Seccomp, errno.into()))?;
    }
    Ok(())
}

fn run(prepared: &Prepared) -> io::Error {
    let mut forbidden = None;
    for path in &prepared.paths {
        let Err(errno) = execve(path, &prepared.words, &prepared.environment);
        match errno {
            nix::errno::Errno::ENOENT | nix::errno::Errno::ENOTDIR => {}
            // As a shell does: there may be another further on in the path.
            nix::errno::Errno::EACCES => forbidden = Some(errno),
            _ => return errno.into(),
        }
    }
    forbidden.unwrap_or(nix::errno::Errno::ENOENT).into()
}

fn tell(mut report: PipeWriter, step: Step, error: &io::Error) {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    let mut told = vec![step.number()];
    told.extend_from_slice(&errno.to_le_bytes());
    let _ = report.write_all(&told);
}

fn read_all(from: &mut PipeReader, into: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < into.len() {
        match from.read(&mut into[got..])? {
            0 => break,
            some => got += some,
        }
    }
    Ok(got)
}

fn wait_for(pid: Pid) {
    let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
}

/// What the host calls a process of this cell: the host's own `/proc` tells it of a handle.
fn host_pid(host: &Host, pidfd: &OwnedFd) -> io::Result<i32> {
    let path = format!("self/fdinfo/{}", pidfd.as_raw_fd());
    let info = openat(
        &host.proc,
        path,
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let info = io::read_to_string(File::from(info))?;
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"));
    let pid = pid.and_then(|pid| pid.trim().parse().ok());
    pid.filter(|pid| *pid > 0)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn map_users(pid: Pid, users: UserRange) -> io::Result<()> {
    let pid = pid.as_raw_nonzero();
    let map = format!("0 {} {}", users.first, users.count);
    std::fs::write(format!("/proc/{pid}/uid_map"), &map)?;
    std::fs::write(format!("/proc/{pid}/gid_map"), &map)
}
