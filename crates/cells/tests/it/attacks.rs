//! Attacks from inside a cell on the node's keys and the machine, as root with capabilities.

#![allow(unsafe_code)]

use std::ffi::{CString, c_int};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use mainstay_cells::seccomp::Profile;
use mainstay_cells::{CellSpec, ExecutableSpec, ExitStatus, Namespace};

use crate::harness::{TestCells, soon, until_gone};

const SECRET: &str = "CELLS_TEST_SECRET";
const HANDLE: &str = "CELLS_TEST_HANDLE";
const TEXT: &str = "the key of the certificate authority";

/// Writes a secret into the state directory.
fn secret(test: &TestCells) -> String {
    let path = test.state().join("ca.key");
    fs::write(&path, TEXT).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Runs an ignored test of this binary inside a cell, and returns its output.
async fn inside(
    test: &TestCells,
    cell: &str,
    entry: &str,
    change: impl FnOnce(&mut ExecutableSpec),
) -> String {
    let program = std::env::current_exe().unwrap();
    let started = test.start_as(cell, "attack", "x", |spec| {
        let options = ["--ignored", "--exact", "--nocapture", "--test-threads=1"];
        spec.words = vec![program.to_str().unwrap().to_owned()];
        spec.words.extend(options.map(str::to_owned));
        spec.words.push(format!("attacks::{entry}"));
        change(spec);
    });
    started.await.unwrap();
    let (how, said) = test.ended(cell, "attack").await;
    assert_eq!(how, ExitStatus::Exited(0), "{said}");
    said
}

fn line<'a>(said: &'a str, name: &str) -> &'a str {
    let value = |line: &'a str| line.split_once(name)?.1.strip_prefix(": ");
    let found = said.lines().find_map(value);
    found.unwrap_or_else(|| panic!("no {name} in {said}"))
}

#[tokio::test]
async fn a_default_executable_has_a_seccomp_filter_and_an_empty_session_keyring() {
    let test = TestCells::new("default-filter");
    test.allocate("a").await;
    let status = test.says("a", "cat /proc/self/status").await;
    assert!(status.contains("Seccomp:\t2\n"), "{status}");
    let said = inside(&test, "a", "system_calls", |_| {}).await;
    for call in ["session keyring", "vsock", "fanotify"] {
        assert!(line(&said, call).contains("not permitted"), "{said}");
    }
    // Without the filter the keyring is still not the one of this process.
    let unconfined = |spec: &mut ExecutableSpec| spec.seccomp = Profile::Unconfined;
    let said = inside(&test, "a", "system_calls", unconfined).await;
    let own = session_keyring().map(|id| id.to_string());
    assert_ne!(line(&said, "session keyring"), own.unwrap_or_default());
    let status = test.says_as("a", "cat /proc/self/status", unconfined).await;
    assert!(status.contains("Seccomp:\t0\n"), "{status}");
    // A set-user-ID program would gain privileges, and keeps the filter.
    let privileges = |spec: &mut ExecutableSpec| spec.allow_new_privileges = true;
    let status = test.says_as("a", "cat /proc/self/status", privileges).await;
    assert!(status.contains("Seccomp:\t2\n"), "{status}");
    assert!(status.contains("NoNewPrivs:\t0\n"), "{status}");
    test.free_all().await;
}

fn result<T: std::fmt::Display>(result: io::Result<T>) -> String {
    result.map_or_else(|error| error.to_string(), |value| value.to_string())
}

fn returned(done: libc::c_long) -> io::Result<libc::c_long> {
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(done)
}

fn session_keyring() -> io::Result<libc::c_long> {
    // SAFETY: KEYCTL_GET_KEYRING_ID of KEY_SPEC_SESSION_KEYRING; no memory is passed.
    returned(unsafe { libc::syscall(libc::SYS_keyctl, 0, -3, 0) })
}

#[test]
#[ignore = "started by another test inside a cell"]
fn system_calls() {
    println!();
    println!("session keyring: {}", result(session_keyring()));
    // SAFETY: system calls without pointers.
    let (vsock, fanotify) = unsafe {
        let vsock = libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0);
        let vsock = result(returned(vsock.into()));
        (
            vsock,
            result(returned(libc::syscall(libc::SYS_fanotify_init, 0, 0))),
        )
    };
    println!("vsock: {vsock}");
    println!("fanotify: {fanotify}");
}

#[tokio::test]
async fn no_capability_leads_through_proc_to_the_state() {
    let test = TestCells::new("ptrace");
    let secret = secret(&test);
    test.allocate("a").await;
    test.start("a", "x", "sleep 1000").await.unwrap();
    let script = format!(
        "for each in /proc/[0-9]*; do
             cat $each/root{secret} $each/cwd{secret} 2>/dev/null
             for fd in $each/fd/*; do
                 cat $fd/ca.key $fd/../ca.key $fd/../../ca.key 2>/dev/null
                 cat $fd/1/root{secret} 2>/dev/null
                 test $each = /proc/1 && readlink $fd
             done
         done
         ls /proc/1/root/{} /proc/1/cwd/{} 2>/dev/null
         true",
        test.state().display(),
        test.state().display()
    );
    for capability in ["SYS_PTRACE", "DAC_READ_SEARCH", "ALL"] {
        let keep = |spec: &mut ExecutableSpec| {
            spec.keep_capabilities = vec![capability.to_owned()];
        };
        let said = test.says_as("a", &script, keep).await;
        let said: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
        // PID 1 has nothing open but its standard streams.
        let harmless = |line: &&str| *line == "/dev/null" || line.ends_with(':');
        assert!(said.iter().all(harmless), "{capability}: {said:?}");
    }
    test.free_all().await;
}

#[tokio::test]
async fn a_file_handle_does_not_open_the_state() {
    let test = TestCells::new("handles");
    let secret = secret(&test);
    // Not every file system has handles.
    let Ok(handle) = handle_of(Path::new(&secret)) else {
        return;
    };
    let handle: String = handle.iter().map(|byte| format!("{byte:02x}")).collect();
    test.allocate("a").await;
    let around = test.state().parent().unwrap().to_str().unwrap().to_owned();
    let attack = |spec: &mut ExecutableSpec| {
        spec.keep_capabilities = vec!["DAC_READ_SEARCH".to_owned()];
        spec.environment = vec![format!("{HANDLE}={handle}"), format!("{SECRET}={around}")];
    };
    let said = inside(&test, "a", "open_by_handle", attack).await;
    assert!(line(&said, "opened").contains("not permitted"), "{said}");
    // The attack itself works.
    let said = inside(&test, "a", "open_by_handle", |spec| {
        attack(spec);
        spec.seccomp = Profile::Unconfined;
    });
    let said = said.await;
    assert_eq!(line(&said, "opened"), TEXT);
    test.free_all().await;
}

const MAX_HANDLE_BYTES: u32 = 128;

/// Returns `struct file_handle` of a file.
fn handle_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut handle = [0_u8; 8 + MAX_HANDLE_BYTES as usize];
    handle[..4].copy_from_slice(&MAX_HANDLE_BYTES.to_ne_bytes());
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut mount: c_int = 0;
    // SAFETY: the handle has room for as many bytes as its first field says; all outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            path.as_ptr(),
            handle.as_mut_ptr(),
            &raw mut mount,
            0,
        )
    };
    returned(done)?;
    Ok(handle.to_vec())
}

#[test]
#[ignore = "started by another test inside a cell"]
fn open_by_handle() {
    use std::io::Read;
    use std::os::fd::{AsRawFd, FromRawFd};
    let given = |name| std::env::var(name).expect("started by another test");
    let text = given(HANDLE);
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    let mut handle: Vec<u8> = (0..text.len()).step_by(2).map(byte).collect();
    let mount = fs::File::open(given(SECRET)).unwrap();
    // SAFETY: the handle is one that the kernel made, and outlives the call.
    let opened = returned(unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            handle.as_mut_ptr(),
            libc::O_RDONLY,
        )
    });
    let opened = opened.and_then(|fd| {
        // SAFETY: the kernel made this descriptor for this call alone.
        let mut file = unsafe { fs::File::from_raw_fd(c_int::try_from(fd).unwrap()) };
        let mut text = String::new();
        file.read_to_string(&mut text).map(|_| text)
    });
    println!();
    println!("opened: {}", result(opened));
}

#[tokio::test]
async fn a_cell_with_the_mounts_and_processes_of_the_host_does_not_see_the_state() {
    let test = TestCells::new("unisolated");
    let secret = secret(&test);
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "seen").unwrap();
    let all = [
        Namespace::Pid,
        Namespace::Mount,
        Namespace::Ipc,
        Namespace::Uts,
    ];
    for (cell, share) in [("mounts", &all[1..2]), ("all", &all[..])] {
        let spec = CellSpec {
            share: share.iter().copied().collect(),
            ..CellSpec::default()
        };
        test.allocate_as(cell, spec).await;
        let script = format!(
            "ls -A {}; cat {secret} /proc/1/root{secret} 2>/dev/null; cat {}/file",
            test.state().display(),
            outside.path().display()
        );
        assert_eq!(test.says(cell, &script).await, "seen\n");
    }
    test.free_all().await;
}

/// A process of the host that is root without capabilities is open to root in a cell, as far as the
/// kernel's own rules go.
#[tokio::test]
async fn a_cell_with_the_processes_of_the_host_neither_opens_nor_signals_them() {
    // SAFETY: without attributes it only returns the version.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, 1) };
    if abi < 6 {
        println!("skipped: this kernel has no Landlock with scopes (ABI {abi})");
        return;
    }
    let test = TestCells::new("host-processes");
    let secret = secret(&test);
    let host = Command::new("setpriv")
        .args(["--bounding-set=-all", "--inh-caps=-all", "sleep", "1000"])
        .spawn();
    let mut host = host.unwrap();
    let share = [Namespace::Pid, Namespace::Mount, Namespace::Ipc];
    for share in [&share[..], &[Namespace::Mount]] {
        let spec = CellSpec {
            share: share.iter().copied().collect(),
            ..CellSpec::default()
        };
        test.allocate_as("a", spec).await;
        let pid = host.id();
        let script = format!(
            "cat /proc/{pid}/root{secret} 2>/dev/null; \
             kill -0 {pid} 2>/dev/null && echo signalled; echo done"
        );
        let said = test.says("a", &script).await;
        if said != "done\n" {
            host.kill().unwrap();
            host.wait().unwrap();
        }
        assert_eq!(said, "done\n", "{share:?}");
        test.cells.free("a".parse().unwrap()).await.unwrap();
    }
    host.kill().unwrap();
    host.wait().unwrap();
    test.free_all().await;
}

#[tokio::test]
async fn a_cell_with_the_mounts_of_the_host_changes_neither_its_limits_nor_the_machine() {
    let test = TestCells::new("shared-limits");
    let share = [Namespace::Pid, Namespace::Mount, Namespace::Ipc];
    for share in [&share[..], &[Namespace::Mount]] {
        let spec = CellSpec {
            share: share.iter().copied().collect(),
            ..CellSpec::default()
        };
        test.allocate_as("a", spec).await;
        let script = "for path in /proc/sys/kernel/core_pattern /proc/sysrq-trigger \
             $(find /sys/fs/cgroup -maxdepth 2 -name cgroup.procs); do \
             if (: >>$path) 2>/dev/null; then echo writable: $path; fi; done; echo done";
        assert_eq!(test.says("a", &format!("sh -c '{script}'")).await, "done\n");
        test.cells.free("a".parse().unwrap()).await.unwrap();
    }
    test.free_all().await;
}

#[tokio::test]
async fn a_fork_bomb_in_a_cell_without_limits_is_bounded() {
    crate::harness::on_every_kind("default-pids", async |mut test| {
        test.reopen_with(|settings| settings.default_pids = Some(400));
        for (cell, share) in [
            ("own", vec![]),
            ("shared", vec![Namespace::Pid, Namespace::Mount]),
        ] {
            let spec = CellSpec {
                share: share.into_iter().collect(),
                ..CellSpec::default()
            };
            test.allocate_as(cell, spec).await;
            // Forks until the kernel refuses; 1000 would be more than permitted.
            let script = "i=0
                while [ $i -lt 1000 ]; do
                    sleep 1000 2>/dev/null >&2 </dev/null &
                    i=$((i+1))
                done 2>&1
                echo all forked";
            test.start_script(cell, "bomb", script).await;
            let (_, said) = test.ended(cell, "bomb").await;
            assert!(!said.contains("all forked"), "{cell}: {said}");
            let count = test.processes_in(cell).len();
            assert!(count <= 400, "{cell}: {count}");
            test.stop(cell, "bomb").await.unwrap();
            test.says(cell, "echo works again").await;
        }
        // Cells of the machine itself are not limited by it.
        let host: u32 = fs::read_to_string("/proc/sys/kernel/pid_max")
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        assert!(host > 400);
        test.free_all().await;
    })
    .await;
}

#[tokio::test]
async fn everything_in_a_cell_ends_with_its_shim_or_its_pid_1() {
    let test = TestCells::new("ends");
    test.allocate("a").await;
    for killed in ["mainstay-shim", "mainstay-init"] {
        let run = test
            .start_script("a", "x", "setsid sleep 1000 & echo up; exec sleep 1000")
            .await;
        test.until_said("a", "x", "up").await;
        let procs = fs::read_to_string(test.group("_shims/a").join("cgroup.procs")).unwrap();
        let is_named = |pid: &&str| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.trim() == killed
        };
        let shim = test.status("a").shim_pid.unwrap();
        let pid: i32 = procs.lines().find(is_named).unwrap().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        until_gone(run.pid).await;
        let (how, _) = test.ended("a", "x").await;
        assert_ne!(how, ExitStatus::Exited(0), "{killed}");
        // The next start has a new shim.
        until_gone(shim).await;
        test.says("a", "true").await;
    }
    test.free_all().await;
}

#[tokio::test]
async fn all_cells_have_a_user_namespace_if_that_is_the_default() {
    let mut test = TestCells::new("users-default");
    test.reopen_with(|settings| settings.user_namespace = true);
    test.allocate("a").await;
    assert!(test.status("a").cell.spec.user_namespace);
    let said = test.says("a", "cat /proc/self/uid_map").await;
    let words: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(words, ["0", "500000", "65536"]);
    test.free_all().await;
}

#[tokio::test]
async fn a_hidden_directory_is_hidden_once_it_is_created() {
    let directory = tempfile::tempdir().unwrap();
    let hidden = directory.path().join("keys");
    let mut test = TestCells::new("hidden-later");
    test.reopen_with(|settings| settings.hidden = vec![hidden.clone()]);
    let script = format!("cat {}/key 2>/dev/null; true", hidden.display());
    for cell in ["absent", "created", "again"] {
        if cell != "absent" {
            fs::create_dir(&hidden).unwrap();
            fs::write(hidden.join("key"), TEXT).unwrap();
        }
        test.allocate(cell).await;
        assert_eq!(test.says(cell, &script).await, "", "{cell}");
        if cell == "created" {
            // What hides it is then unmounted.
            fs::remove_dir_all(&hidden).unwrap();
        }
    }
    test.free_all().await;
}

/// Runs the zygote below a shell whose mount namespace stands for the host's, and writes the PID of
/// the shell into a file.
const BELOW_A_HOST: &str = r#"#!/bin/sh
exec unshare --mount --propagation private sh -ec '
    echo $$ >"$1"; shift
    mount --make-rshared /
    "$@"
    :
' sh "$@"
"#;

#[tokio::test]
async fn what_the_host_mounts_later_is_masked_and_what_it_unmounts_is_free() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().display().to_string();
    let shell = directory.path().join("shell");
    let mut test = TestCells::new("mounted-later");
    let secret = secret(&test);
    test.reopen_with(|settings| {
        // A file, because the engine runs it by another name, which the shell of a guest would take
        // for one of its applets.
        let script = directory.path().join("script");
        fs::write(&script, BELOW_A_HOST).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let zygote = &mut settings.zygote;
        let own = [
            shell.clone().into(),
            zygote.program.clone().into_os_string(),
        ];
        zygote.args.splice(..0, own);
        zygote.program = script;
    });
    for name in ["state", "proc", "disk"] {
        fs::create_dir(directory.path().join(name)).unwrap();
    }
    let script = format!("ls -A {at}/state; ls -A {at}/proc; cat {at}/disk/file 2>/dev/null; true");
    test.allocate("before").await;
    assert_eq!(test.says("before", &script).await, "");
    let shell = fs::read_to_string(&shell).unwrap();
    let shell = shell.trim();
    let on_host = |script: &str| {
        let enter = ["-m", "-t", shell, "sh", "-ec", script];
        let done = Command::new("nsenter").args(enter).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    let state = Path::new(&secret).parent().unwrap().display();
    on_host(&format!(
        "mount -t tmpfs disk {at}/disk; echo seen >{at}/disk/file
         mount --bind {state} {at}/state; mount -t proc proc {at}/proc"
    ));
    let mut unmounted = inotify::Inotify::init().unwrap();
    let file = format!("/proc/{shell}/root{at}/disk/file");
    let mut watches = unmounted.watches();
    watches.add(file, inotify::WatchMask::DELETE_SELF).unwrap();
    for cell in ["after", "again"] {
        test.allocate(cell).await;
        assert_eq!(test.says(cell, &script).await, "seen\n", "{cell}");
        test.free(cell).await;
    }
    on_host(&format!("umount {at}/disk"));
    // Only once no mount namespace has it any more.
    let event = tokio::task::spawn_blocking(move || {
        let mut buffer = [0; 1024];
        let mut events = unmounted.read_events_blocking(&mut buffer).unwrap();
        events.next().map(|event| event.mask)
    });
    let event = soon("the file system to go", event).await.unwrap();
    assert_eq!(event, Some(inotify::EventMask::UNMOUNT));
    test.free_all().await;
}

/// Runs the zygote in a chroot, a plain directory with parts of the host below, in a mount namespace
/// of its own.
const IN_CHROOT: &str = r#"
exec unshare --mount sh -ec '
    root=$1; program=$2; shift 2
    for part in bin lib lib64 sbin usr etc proc sys dev tmp var; do
        [ -L /$part ] && { cp -P /$part "$root/$part"; continue; }
        [ -d /$part ] || continue
        mkdir -p "$root/$part"
        mount --rbind /$part "$root/$part"
    done
    mkdir -p "$root$(dirname "$program")"
    mount --bind "$(dirname "$program")" "$root$(dirname "$program")"
    touch "$root/inside-the-chroot"
    exec chroot "$root" "$program" "$@"
' sh "$@"
"#;

#[tokio::test]
async fn root_in_a_cell_cannot_leave_the_chroot_of_the_daemon() {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    if mounts
        .lines()
        .any(|mount| mount.starts_with("rootfs / ") || mount.starts_with("none / rootfs"))
    {
        println!("skipped: an initramfs as root file system cannot be pivoted");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let mut test = TestCells::new("leave-chroot");
    test.reopen_with(|settings| {
        let zygote = &mut settings.zygote;
        let options = ["-ec", IN_CHROOT, "sh", root.path().to_str().unwrap()];
        let mut args: Vec<_> = options.map(Into::into).to_vec();
        args.push(zygote.program.clone().into_os_string());
        args.append(&mut zygote.args);
        zygote.program = "/bin/sh".into();
        zygote.args = args;
    });
    for (cell, share) in [
        ("own", vec![]),
        ("shared", vec![Namespace::Pid, Namespace::Mount]),
    ] {
        let share = share.into_iter().collect();
        let spec = CellSpec {
            share,
            ..CellSpec::default()
        };
        test.allocate_as(cell, spec).await;
        let said = inside(&test, cell, "leave_chroot", |_| {}).await;
        assert_eq!(line(&said, "before"), "true", "{cell}: {said}");
        assert_eq!(line(&said, "after"), "true", "{cell}: {said}");
    }
    test.free_all().await;
}

#[test]
#[ignore = "started by another test inside a cell"]
fn leave_chroot() {
    let is_inside = || Path::new("/inside-the-chroot").exists();
    println!();
    println!("before: {}", is_inside());
    std::env::set_current_dir("/").unwrap();
    // The working directory is then outside the root directory, and `..` is not bounded by it.
    std::os::unix::fs::chroot("/usr").unwrap();
    for _ in 0..64 {
        std::env::set_current_dir("..").unwrap();
    }
    std::os::unix::fs::chroot(".").unwrap();
    println!("after: {}", is_inside());
}
