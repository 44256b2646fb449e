//! Effects of dropped capabilities and of seccomp profiles.

use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use mainstay_cells::capabilities::DEFAULT;

use crate::child::Confinement;

const STATUS: [&str; 2] = ["cat", "/proc/self/status"];
const NOBODY: u32 = 65_534;
const NET_BIND_SERVICE: u64 = 1 << 10;
const SYS_ADMIN: u64 = 1 << 21;

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(":\t");
    status
        .lines()
        .find_map(value)
        .unwrap_or_else(|| panic!("no {name} in {status}"))
}

/// The capability sets inheritable, permitted, effective, bounding and ambient.
fn sets(status: &str) -> [u64; 5] {
    ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]
        .map(|name| u64::from_str_radix(field(status, name), 16).unwrap())
}

fn sets_of(confinement: Confinement<'_>) -> [u64; 5] {
    sets(&out(&confinement.run(&STATUS)))
}

/// The capabilities that this process can pass on.
fn held() -> u64 {
    let [_, permitted, _, bounding, _] =
        sets(&std::fs::read_to_string("/proc/self/status").unwrap());
    permitted & bounding
}

fn out(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", said(output));
    text
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The stderr of a command that failed.
fn complaint(output: &Output) -> String {
    assert!(!output.status.success(), "it succeeded");
    said(output)
}

#[test]
fn root_keeps_the_default_capabilities_and_cannot_gain_more() {
    let kept = DEFAULT.bits() & held();
    let sets = sets_of(Confinement::default());
    assert_eq!(sets, [0, kept, kept, kept, 0]);
}

#[test]
fn root_keeps_requested_capabilities() {
    let kept = (DEFAULT.bits() | SYS_ADMIN) & held();
    let keep = "cap_sys_admin";
    let sets = sets_of(Confinement {
        keep,
        ..Confinement::default()
    });
    assert_eq!(sets, [0, kept, kept, kept, 0]);
}

#[test]
fn all_grants_every_capability_of_the_node() {
    let held = held();
    assert_ne!(held & SYS_ADMIN, 0, "these tests run as root");
    let sets = sets_of(Confinement {
        keep: "ALL",
        ..Confinement::default()
    });
    assert_eq!(sets, [0, held, held, held, 0]);
}

#[test]
fn another_user_has_only_requested_capabilities() {
    let user = NOBODY;
    let bounding = DEFAULT.bits() & held();
    let sets = sets_of(Confinement {
        user,
        ..Confinement::default()
    });
    assert_eq!(sets, [0, 0, 0, bounding, 0]);

    let keep = "net_bind_service";
    let sets = sets_of(Confinement {
        user,
        keep,
        ..Confinement::default()
    });
    let one = NET_BIND_SERVICE;
    assert_eq!(sets, [one, one, one, bounding, one]);
}

#[test]
fn a_dropped_capability_cannot_be_used() {
    let unshare = ["unshare", "--uts", "true"];
    let error = complaint(&Confinement::default().run(&unshare));
    assert!(error.contains("Operation not permitted"), "{error}");
    let with = Confinement {
        keep: "SYS_ADMIN",
        ..Confinement::default()
    };
    out(&with.run(&unshare));
}

/// A call that only the profile refuses.
fn under(profile: &str) -> Confinement<'_> {
    Confinement {
        keep: "ALL",
        user: 0,
        profile,
    }
}

#[test]
fn a_seccomp_profile_is_irrevocable() {
    let status = out(&under("default").run(&STATUS));
    assert_eq!(field(&status, "Seccomp"), "2");
    assert_eq!(field(&status, "NoNewPrivs"), "1");
    let status = out(&under("").run(&STATUS));
    assert_eq!(field(&status, "Seccomp"), "0");
}

#[test]
fn the_default_profile_refuses_calls_that_reach_beyond_the_cell() {
    let mount: &[&str] = &["mount", "-t", "tmpfs", "tmpfs", "/tmp"];
    for refused in [
        mount,
        &["umount", "/proc"],
        &["unshare", "--uts", "true"],
        &["unshare", "--user", "true"],
        &["unshare", "--time", "true"],
        &["nsenter", "--uts=/proc/self/ns/uts", "true"],
        &["dmesg", "--syslog"],
    ] {
        let may = under("").run(refused);
        // busybox tools have fewer options.
        if String::from_utf8_lossy(&may.stderr).contains("unrecognized option") {
            continue;
        }
        out(&may);
        let error = complaint(&under("default").run(refused)).to_lowercase();
        let denied = [
            "operation not permitted",
            "permission denied",
            "must be superuser",
        ];
        assert!(
            denied.iter().any(|word| error.contains(word)),
            "{refused:?}: {error}"
        );
    }
}

#[test]
fn ordinary_programs_run_under_the_default_profile() {
    let confined = under("default");
    let sum = out(&confined.run(&["sh", "-c", "echo sum $((40 + 2)) | cat; (exit 0)"]));
    assert!(sum.contains("sum 42"), "{sum}");
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let threads = out(&confined.run(&[own, "child::threads", "--exact", "--ignored"]));
    assert!(threads.contains("1 passed"), "{threads}");
}

/// The names cover every architecture and libc.
fn mkdir(action: &str) -> String {
    let names = r#""mkdir","mkdirat""#;
    format!(r#"{{"names":[{names}],"action":{action}}}"#)
}

fn allowing_but(rules: &str) -> String {
    format!(r#"{{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{rules}]}}"#)
}

#[test]
fn a_custom_profile_is_enforced() {
    let directory = tempfile::tempdir().unwrap();
    let made = directory.path().join("made");
    let command = ["mkdir", made.to_str().unwrap()];

    let errno = allowing_but(&mkdir(r#""SCMP_ACT_ERRNO","errnoRet":99"#));
    let error = complaint(&under(&errno).run(&command));
    assert!(error.contains("Cannot assign requested address"), "{error}");
    let kill = allowing_but(&mkdir(r#""SCMP_ACT_KILL_PROCESS""#));
    const SIGSYS: i32 = 31;
    assert_eq!(under(&kill).run(&command).status.signal(), Some(SIGSYS));
    assert!(!made.exists());
    let allow = allowing_but(&mkdir(r#""SCMP_ACT_ALLOW""#));
    out(&under(&allow).run(&command));
    assert!(made.exists());
}

#[test]
fn a_profile_that_refuses_seccomp_is_installed_whole() {
    let directory = tempfile::tempdir().unwrap();
    let made = directory.path().join("made");
    let itself = r#"{"names":["seccomp","prctl"],"action":"SCMP_ACT_ERRNO"}"#;
    let other = mkdir(r#""SCMP_ACT_ERRNO","errnoRet":99"#);
    let profile = allowing_but(&format!("{itself},{other}"));
    let error = complaint(&under(&profile).run(&["mkdir", made.to_str().unwrap()]));
    assert!(error.contains("Cannot assign requested address"), "{error}");
}
