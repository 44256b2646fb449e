//! Fork and exec of an executable: into its cgroup, with reduced privileges.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::execve;
use rustix::process::{Gid, Pid, Resource, Rlimit, Uid, chdir, getrlimit, setrlimit};

use super::protocol::{Program, Step, UserRange};
use crate::seccomp::{self, Filter};
use crate::sys::{self, Forked};

/// The file descriptors that the forked child uses.
pub(super) struct ChildFds {
    pub(super) unified: Option<OwnedFd>,
    pub(super) procs: Vec<OwnedFd>,
    pub(super) stdio: ChildStdio,
}

/// The standard input, output and error of the child.
pub(super) enum ChildStdio {
    Pipes {
        /// Empty if there is none.
        stdin: Option<File>,
        stdout: File,
        stderr: File,
    },
    Terminal(File),
}

/// The step that failed, and its error.
pub(super) type Failure = (Step, io::Error);

/// The strings of a [`Program`] as C strings, and its groups, converted before the fork.
struct ExecStrings {
    paths: Vec<CString>,
    words: Vec<CString>,
    environment: Vec<CString>,
    working_directory: CString,
    groups: Vec<Gid>,
}

/// Everything the child needs, allocated before the fork.
struct Prepared<'a> {
    program: &'a Program,
    strings: ExecStrings,
    filter: Option<&'a Filter>,
}

/// Forks and executes a program. Returns its PID on the host, in whose PID namespace the shim is,
/// once the exec has succeeded or failed.
pub(super) fn spawn(program: &Program, fds: ChildFds) -> Result<Pid, Failure> {
    let failed = |step| move |error: io::Error| (step, error);
    let filter = match program.builtin_filter {
        true => Some(seccomp::builtin_filter().map_err(io::Error::other)),
        false => program.filter.as_ref().map(Ok),
    };
    let prepared = Prepared {
        program,
        strings: ExecStrings::new(program).map_err(failed(Step::Execute))?,
        filter: filter.transpose().map_err(failed(Step::Seccomp))?,
    };
    // CLOEXEC: EOF says that the exec succeeded; a failure before it comes through this pipe.
    let (mut failures, report) = io::pipe().map_err(failed(Step::Fork))?;
    let (held, release) = io::pipe().map_err(failed(Step::Fork))?;
    let namespaces = program.users.map_or(0, |_| libc::CLONE_NEWUSER);
    let into = fds.unified.as_ref().map(AsFd::as_fd);
    // SAFETY: a shim has one thread, and the child below ends in an exec or in `exit_now`.
    #[allow(unsafe_code)]
    let forked = unsafe { sys::fork_into(namespaces, into) }.map_err(failed(Step::Fork))?;
    let Forked::Parent { pid, .. } = forked else {
        drop((failures, release));
        let (step, error) = match leave_shim(&fds, &held, &report) {
            Ok(()) => exec_in_child(&prepared, fds, held),
            Err(error) => (Step::Fork, error),
        };
        report_failure(report, step, &error);
        sys::exit_now(127)
    };
    drop((report, fds, held));
    if let Some(users) = program.users
        && let Err(error) = map_users(pid, users)
    {
        // At EOF of `held` the child exits.
        drop(release);
        reap(pid);
        return Err((Step::Users, error));
    }
    let released = (&release).write_all(b"g");
    drop(release);
    let mut reported = [0; 5];
    let failure = match released.and_then(|()| read_all(&mut failures, &mut reported)) {
        Ok(0) => None,
        Ok(_) => {
            let [step, errno @ ..] = reported;
            let error = io::Error::from_raw_os_error(i32::from_le_bytes(errno));
            Some((Step::from_number(step), error))
        }
        Err(error) => Some((Step::Fork, error)),
    };
    match failure {
        None => Ok(pid),
        Some(failure) => {
            reap(pid);
            Err(failure)
        }
    }
}

impl ExecStrings {
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
            groups: program.groups.iter().copied().map(Gid::from_raw).collect(),
        })
    }
}

/// Gives up the file descriptors and the working directory of the shim, first of all: the child is
/// visible inside the cell, and until its exec a process with `SYS_PTRACE` could open them.
fn leave_shim(fds: &ChildFds, held: &PipeReader, report: &PipeWriter) -> io::Result<()> {
    let mut kept = vec![held.as_fd(), report.as_fd()];
    kept.extend(fds.unified.iter().chain(&fds.procs).map(AsFd::as_fd));
    match &fds.stdio {
        ChildStdio::Pipes {
            stdin,
            stdout,
            stderr,
        } => kept.extend(stdin.iter().chain([stdout, stderr]).map(AsFd::as_fd)),
        ChildStdio::Terminal(terminal) => kept.push(terminal.as_fd()),
    }
    // SAFETY: the child uses these descriptors alone, and never returns to code that owns others: it
    // ends in an exec or in `exit_now`.
    #[allow(unsafe_code)]
    unsafe { sys::close_all_but(&mut kept) }?;
    Ok(chdir("/")?)
}

/// Runs in the child. Returns only a failure.
fn exec_in_child(prepared: &Prepared<'_>, fds: ChildFds, held: PipeReader) -> Failure {
    match prepare_child(prepared, fds, held) {
        Err(failure) => failure,
        Ok(()) => (Step::Execute, exec(&prepared.strings)),
    }
}

fn prepare_child(
    prepared: &Prepared<'_>,
    fds: ChildFds,
    mut held: PipeReader,
) -> Result<(), Failure> {
    let program = prepared.program;
    // v1 has no CLONE_INTO_CGROUP; nothing is executed before the move.
    for mut procs in fds.procs.into_iter().map(File::from) {
        procs
            .write_all(b"0")
            .map_err(|error| (Step::Group, error))?;
    }
    let mut go = [0; 1];
    held.read_exact(&mut go)
        .map_err(|error| (Step::Users, error))?;
    // The shim has blocked some, and has changed the action of none.
    // SAFETY: this child relies on no mask: it only prepares its exec.
    #[allow(unsafe_code)]
    unsafe { sys::unblock_signals() }.map_err(|error| (Step::Fork, error))?;
    let _ = rustix::process::setsid();
    redirect_stdio(fds.stdio).map_err(|error| (Step::Input, error))?;
    if program.own_cgroups {
        unshare(CloneFlags::CLONE_NEWCGROUP).map_err(|errno| (Step::Group, errno.into()))?;
    }
    lower_nofile_limit();
    if program.sees_host_processes {
        // Those that are root with no more capabilities lead, by /proc/PID/root, past all masks.
        sys::confine_to_own_processes().map_err(|error| (Step::Capabilities, error))?;
    }
    chdir(&prepared.strings.working_directory)
        .map_err(|errno| (Step::WorkingDirectory, errno.into()))?;
    drop_privileges(prepared)
}

fn redirect_stdio(stdio: ChildStdio) -> io::Result<()> {
    match stdio {
        ChildStdio::Pipes {
            stdin,
            stdout,
            stderr,
        } => {
            match stdin {
                Some(stdin) => rustix::stdio::dup2_stdin(stdin)?,
                None => rustix::stdio::dup2_stdin(File::open("/dev/null")?)?,
            }
            rustix::stdio::dup2_stdout(stdout)?;
            rustix::stdio::dup2_stderr(stderr)?;
        }
        ChildStdio::Terminal(terminal) => {
            // The child leads a session of its own, which this becomes the terminal of.
            rustix::process::ioctl_tiocsctty(&terminal)?;
            rustix::stdio::dup2_stdin(&terminal)?;
            rustix::stdio::dup2_stdout(&terminal)?;
            rustix::stdio::dup2_stderr(&terminal)?;
        }
    }
    Ok(())
}

/// Lowers the soft limit of file descriptors that the daemon has raised: programs that use
/// `select` break beyond 1024. The hard limit stays, so a program can raise it again.
fn lower_nofile_limit() {
    const DEFAULT_NOFILE: u64 = 1024;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current > DEFAULT_NOFILE) {
        let current = Some(
            limit
                .maximum
                .map_or(DEFAULT_NOFILE, |max| max.min(DEFAULT_NOFILE)),
        );
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}

fn change_identity(program: &Program, groups: &[Gid]) -> rustix::io::Result<()> {
    use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
    set_thread_groups(groups)?;
    set_thread_gid(Gid::from_raw(program.gid))?;
    set_thread_uid(Uid::from_raw(program.uid))
}

fn drop_privileges(prepared: &Prepared<'_>) -> Result<(), Failure> {
    let Prepared {
        program, filter, ..
    } = *prepared;
    sys::join_new_session_keyring().map_err(|errno| (Step::Identity, errno.into()))?;
    if program.unconfined {
        // The kernel takes all capabilities from a UID other than 0.
        return change_identity(program, &prepared.strings.groups)
            .map_err(|errno| (Step::Identity, errno.into()));
    }
    if program.new_privileges
        && let Some(filter) = filter
    {
        // While it may without no_new_privs; the built-in profile refuses none of the steps below.
        filter
            .install_privileged()
            .map_err(|errno| (Step::Seccomp, errno.into()))?;
    }
    let mut changed = Ok(());
    let change_user = || {
        changed = change_identity(program, &[]);
        changed
    };
    let dropped = program.capabilities.drop_to(change_user);
    changed.map_err(|errno| (Step::Identity, errno.into()))?;
    dropped.map_err(|errno| (Step::Capabilities, errno.into()))?;
    if program.new_privileges {
        return Ok(());
    }
    rustix::thread::set_no_new_privs(true).map_err(|errno| (Step::Capabilities, errno.into()))?;
    if let Some(filter) = filter {
        filter
            .install()
            .map_err(|errno| (Step::Seccomp, errno.into()))?;
    }
    Ok(())
}

/// Executes the first candidate path that exists. Returns only on failure.
fn exec(strings: &ExecStrings) -> io::Error {
    let mut denied = None;
    for path in &strings.paths {
        let Err(errno) = execve(path, &strings.words, &strings.environment);
        match errno {
            nix::errno::Errno::ENOENT | nix::errno::Errno::ENOTDIR => {}
            // As a shell does: a later directory of PATH may have another.
            nix::errno::Errno::EACCES => denied = Some(errno),
            _ => return errno.into(),
        }
    }
    denied.unwrap_or(nix::errno::Errno::ENOENT).into()
}

fn report_failure(mut report: PipeWriter, step: Step, error: &io::Error) {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    let mut message = vec![step.number()];
    message.extend_from_slice(&errno.to_le_bytes());
    let _ = report.write_all(&message);
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

fn reap(pid: Pid) {
    let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
}

/// Writes the UID and GID maps of a child's user namespace.
fn map_users(pid: Pid, users: UserRange) -> io::Result<()> {
    let pid = pid.as_raw_nonzero();
    let map = format!("0 {} {}", users.first, users.count);
    // Below the host's `/proc`, the working directory of a shim.
    std::fs::write(format!("{pid}/uid_map"), &map)?;
    std::fs::write(format!("{pid}/gid_map"), &map)
}
