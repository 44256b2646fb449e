//! What an executable in a cell can see, reach and change, and what it cannot.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use mainstay_cells::capabilities::DEFAULT;
use mainstay_cells::cgroup::Layout;
use mainstay_cells::{CellSpec, Namespace};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use crate::harness::{TestCells, name, on_every_kind};

const NOBODY: u32 = 65_534;
/// The kernel's names of what a cell has of its own.
const NAMESPACES: [(Namespace, &str); 6] = [
    (Namespace::Network, "net"),
    (Namespace::Ipc, "ipc"),
    (Namespace::Uts, "uts"),
    (Namespace::Pid, "pid"),
    (Namespace::Mount, "mnt"),
    (Namespace::Cgroup, "cgroup"),
];

fn sharing(namespaces: impl IntoIterator<Item = Namespace>) -> CellSpec {
    CellSpec {
        share: namespaces.into_iter().collect(),
        ..CellSpec::default()
    }
}

fn of_host(namespace: &str) -> String {
    let link = fs::read_link(format!("/proc/self/ns/{namespace}")).unwrap();
    link.to_str().unwrap().to_owned()
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(":\t");
    let found = status.lines().find_map(value);
    found.unwrap_or_else(|| panic!("no {name} in {status}"))
}

#[tokio::test]
async fn only_its_own_processes_are_there_and_the_first_is_the_shim() {
    let test = TestCells::new("own-pids");
    test.allocate("a").await;
    test.allocate("b").await;
    test.start("b", "neighbour", "sleep 1000").await.unwrap();
    let said = test
        .says(
            "a",
            "for each in /proc/[0-9]*; do cat $each/comm; done; cat /proc/1/comm",
        )
        .await;
    let names: BTreeSet<&str> = said.lines().collect();
    assert_eq!(names, BTreeSet::from(["mainstay-shim", "sh"]));
    assert_eq!(said.lines().last(), Some("mainstay-shim"));
    // The first process of a cell cannot be ended from inside.
    test.says("a", "kill -9 1; kill -STOP 1; test -d /proc/1")
        .await;
    test.says("a", "true").await;
    test.free_all().await;
}

#[tokio::test]
async fn everything_is_its_own_unless_it_is_shared() {
    let test = TestCells::new("namespaces");
    let script = "for each in net ipc uts pid mnt cgroup; do readlink /proc/self/ns/$each; done";
    test.allocate("own").await;
    let own = test.says("own", script).await;
    for (line, (_, kind)) in own.lines().zip(NAMESPACES) {
        assert_ne!(line, of_host(kind), "{kind}");
    }
    assert_eq!(own.lines().count(), NAMESPACES.len());

    for (shared, kind) in NAMESPACES {
        let mut share = vec![shared];
        // Refused alone: they belong together.
        share.extend((shared == Namespace::Pid).then_some(Namespace::Mount));
        let spec = sharing(share.clone());
        test.allocate_as(kind, spec).await;
        let said = test.says(kind, script).await;
        for (line, (namespace, kind)) in said.lines().zip(NAMESPACES) {
            let is_shared = share.contains(&namespace);
            assert_eq!(
                line == of_host(kind),
                is_shared,
                "{shared:?}: {kind} {line}"
            );
        }
    }
    test.free_all().await;
}

#[tokio::test]
async fn two_cells_have_nothing_of_each_other() {
    let test = TestCells::new("two");
    let script = "for each in net ipc uts pid mnt; do readlink /proc/self/ns/$each; done";
    test.allocate("a").await;
    test.allocate("a/b").await;
    let (outer, inner) = (test.says("a", script).await, test.says("a/b", script).await);
    for (outer, inner) in outer.lines().zip(inner.lines()) {
        assert_ne!(outer, inner);
    }
    // Nor do they share what cells have instead of the host's.
    test.says("a", "echo x >/dev/shm/left").await;
    assert_eq!(test.says("a/b", "ls -A /dev/shm").await, "");
    test.says("a", "rm -f /dev/null; echo x >/dev/left; true")
        .await;
    test.says("a/b", "test -c /dev/null && ! test -e /dev/left")
        .await;
    test.free_all().await;
}

#[tokio::test]
async fn its_host_name_is_its_label_or_what_was_asked_for() {
    let test = TestCells::new("hostname");
    let before = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    test.allocate("outer").await;
    test.allocate("outer/inner-1").await;
    assert_eq!(test.says("outer/inner-1", "hostname").await, "inner-1\n");
    let spec = CellSpec {
        hostname: Some("db.example".to_owned()),
        ..CellSpec::default()
    };
    test.allocate_as("named", spec).await;
    let said = test.says("named", "hostname; echo $HOSTNAME").await;
    assert_eq!(said, "db.example\ndb.example\n");
    test.allocate_as("shared", sharing([Namespace::Uts])).await;
    assert_eq!(test.says("shared", "hostname").await, before);
    let after = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(after, before, "the host keeps its own");
    test.free_all().await;
}

#[tokio::test]
async fn its_network_is_loopback_alone_and_up() {
    let test = TestCells::new("network");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!(":{:04X} ", listener.local_addr().unwrap().port());
    test.allocate("a").await;
    let devices = test.says("a", "tail -n +3 /proc/net/dev").await;
    let devices: Vec<&str> = devices.lines().map(str::trim_start).collect();
    assert_eq!(devices.len(), 1, "{devices:?}");
    assert!(devices[0].starts_with("lo:"), "{devices:?}");
    let routes = test.says("a", "cat /proc/net/fib_trie").await;
    assert!(routes.contains("127.0.0.1"), "{routes}");
    let sockets = test.says("a", "cat /proc/net/tcp").await;
    assert!(!sockets.contains(&port), "{sockets}");
    test.allocate_as("shared", sharing([Namespace::Network]))
        .await;
    let sockets = test.says("shared", "cat /proc/net/tcp").await;
    assert!(sockets.contains(&port), "{sockets}");
    test.free_all().await;
}

#[tokio::test]
async fn its_control_groups_begin_with_itself() {
    on_every_kind("cgroupns", async |test| {
        test.allocate("a").await;
        let said = test.says("a", "cat /proc/self/cgroup").await;
        assert!(said.lines().all(|line| line.ends_with(":/")), "{said}");
        test.allocate_as("b", sharing([Namespace::Cgroup])).await;
        let said = test.says("b", "cat /proc/self/cgroup").await;
        let path = format!("/{}/b/_script", test.cgroup());
        assert!(said.lines().any(|line| line.ends_with(&path)), "{said}");
        test.free_all().await;
    })
    .await;
}

#[tokio::test]
async fn its_mounts_do_not_appear_on_the_host() {
    let test = TestCells::new("mounts");
    let state = test.state().to_str().unwrap().to_owned();
    let ours = || -> Vec<String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let at = |line: &str| line.split(' ').nth(4).unwrap_or_default().to_owned();
        let places = ["/proc", "/sys", "/dev"];
        let is_ours = |at: &String| {
            at.starts_with(&state) || places.iter().any(|place| at.starts_with(place))
        };
        mounts.lines().map(at).filter(is_ours).collect()
    };
    let before = ours();
    test.allocate("a").await;
    test.start("a", "x", "sleep 1000").await.unwrap();
    let inside = test.says("a", "cat /proc/self/mountinfo").await;
    assert!(inside.contains(&state), "it is covered: {inside}");
    assert_eq!(ours(), before);
    test.free_all().await;
    assert_eq!(ours(), before);
}

#[tokio::test]
async fn the_state_of_the_node_cannot_be_reached_from_inside() {
    let test = TestCells::new("hidden");
    let state = test.state().to_str().unwrap();
    test.allocate("a").await;
    test.start("a", "x", "sleep 1000").await.unwrap();
    let script = format!(
        "ls -A {state}
         touch {state}/x 2>/dev/null && echo written
         for each in root cwd map_files $(cd /proc/1; echo fd/*); do
             ls /proc/1/$each/ 2>/dev/null
             readlink /proc/1/$each
         done
         for each in exe environ maps mem; do
             head -c 1 /proc/1/$each 2>/dev/null && echo read $each
         done
         umount {state} 2>/dev/null && echo uncovered
         true"
    );
    assert_eq!(test.says("a", &script).await, "");
    // The same script finds it where it is not hidden.
    test.allocate_as("b", sharing([Namespace::Mount])).await;
    let seen = test.says("b", &format!("ls -A {state}")).await;
    assert_eq!(seen, "cells\n");
    test.free_all().await;
}

#[tokio::test]
async fn nothing_is_open_in_an_executable_but_its_output() {
    let test = TestCells::new("descriptors");
    test.allocate("a").await;
    // The fourth is the directory that is listed.
    assert_eq!(test.says("a", "ls /proc/self/fd").await, "0\n1\n2\n3\n");
    let said = test
        .says("a", "readlink /proc/self/fd/0; cat; echo end")
        .await;
    assert_eq!(said, "/dev/null\nend\n");
    test.free_all().await;
}

#[tokio::test]
async fn the_machine_cannot_be_changed_from_inside() {
    on_every_kind("read-only", async |test| {
        test.allocate("a").await;
        let layout = Layout::detect().unwrap();
        let trees = layout.v1.values().chain(&layout.unified);
        let groups: Vec<String> = trees
            .map(|tree| tree.join(test.cgroup()).display().to_string())
            .filter(|root| Path::new(root).exists())
            .collect();
        assert!(!groups.is_empty());
        // Opening is tried, nothing is ever written.
        let script = format!(
            "for each in /proc/sys/vm/overcommit_memory /proc/sys/kernel/core_pattern \
                 /proc/sysrq-trigger /proc/irq/default_smp_affinity; do
                 test -e $each && (: >$each) 2>/dev/null && echo opened $each
             done
             for each in {}; do mkdir $each/evil 2>/dev/null && echo made $each/evil; done
             grep ' /sys' /proc/self/mountinfo | grep -v ' ro[, ]'
             mount -t tmpfs tmpfs /tmp 2>/dev/null && echo mounted
             true",
            groups.join(" ")
        );
        assert_eq!(test.says("a", &script).await, "");
        test.free_all().await;
    })
    .await;
}

#[tokio::test]
async fn no_disk_can_be_opened() {
    let test = TestCells::new("devices");
    test.allocate("a").await;
    let said = test.says("a", "ls /dev").await;
    let expected = [
        "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
        "urandom", "zero",
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    let script = "head -c 5 /dev/zero | wc -c; head -c 5 /dev/urandom | wc -c; echo x >/dev/null";
    let said = test.says("a", script).await;
    let counts: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(counts, ["5", "5"]);

    let directory = tempfile::tempdir().unwrap();
    let node = directory.path().join("disk");
    let script = format!("mknod {} b 8 0 2>&1 || true", node.display());
    let said = test.says("a", &script).await;
    assert!(said.contains("not permitted"), "{said}");
    assert!(!node.exists());
    test.free_all().await;
}

#[tokio::test]
async fn its_powers_are_the_default_ones_and_cannot_grow() {
    let test = TestCells::new("powers");
    test.allocate("a").await;
    let host = fs::read_to_string("/proc/self/status").unwrap();
    let bits = |status: &str, set: &str| u64::from_str_radix(field(status, set), 16).unwrap();
    let most = DEFAULT.bits() & bits(&host, "CapBnd");

    let root = test.says("a", "cat /proc/self/status").await;
    for set in ["CapBnd", "CapPrm", "CapEff"] {
        assert_eq!(bits(&root, set), most, "{set}");
    }
    assert_eq!((bits(&root, "CapInh"), bits(&root, "CapAmb")), (0, 0));
    assert_eq!(field(&root, "NoNewPrivs"), "1");
    assert_eq!(field(&root, "Groups").trim(), "");

    let other = |spec: &mut mainstay_cells::ExecutableSpec| spec.uid = Some(1234);
    let other = test.says_as("a", "cat /proc/self/status", other).await;
    assert_eq!((bits(&other, "CapEff"), bits(&other, "CapPrm")), (0, 0));
    assert_eq!(bits(&other, "CapBnd"), most);

    let asked = |spec: &mut mainstay_cells::ExecutableSpec| {
        spec.uid = Some(1234);
        spec.keep_capabilities = vec!["net_admin".to_owned()];
        spec.allow_new_privileges = true;
    };
    let asked = test.says_as("a", "cat /proc/self/status", asked).await;
    assert_eq!(bits(&asked, "CapEff"), 1 << 12);
    assert_eq!(field(&asked, "NoNewPrivs"), "0");
    test.free_all().await;
}

#[tokio::test]
async fn it_runs_as_whom_where_and_with_what_was_asked_for() {
    let test = TestCells::new("identity");
    test.allocate("a").await;
    let ask = |spec: &mut mainstay_cells::ExecutableSpec| {
        spec.uid = Some(1234);
        spec.gid = Some(4321);
        spec.working_directory = Some("/tmp".to_owned());
        spec.environment = vec!["EMPTY=".to_owned(), "HOME=/some where".to_owned()];
    };
    let status = test.says_as("a", "cat /proc/self/status; pwd", ask).await;
    assert_eq!(field(&status, "Uid"), "1234\t1234\t1234\t1234");
    assert_eq!(field(&status, "Gid"), "4321\t4321\t4321\t4321");
    assert_eq!(field(&status, "Groups").trim(), "");
    assert_eq!(status.lines().last(), Some("/tmp"));
    // Without a shell, which adds some of its own.
    test.start_as("a", "env", "env", ask).await.unwrap();
    let (_, variables) = test.ended("a", "env").await;
    let variables: BTreeSet<&str> = variables.lines().collect();
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let expected = [path, "HOSTNAME=a", "EMPTY=", "HOME=/some where"];
    assert_eq!(variables, BTreeSet::from(expected));

    let nowhere = test.start_as("a", "x", "true", |spec| {
        spec.working_directory = Some("/no/such/place".to_owned());
    });
    let error = nowhere.await.unwrap_err().to_string();
    assert!(error.contains("/no/such/place"), "{error}");
    test.free_all().await;
}

#[tokio::test]
async fn the_default_profile_refuses_mounts_even_to_those_who_may() {
    let test = TestCells::new("seccomp");
    test.allocate("a").await;
    let script =
        "unshare -m true 2>/dev/null; echo $?; mount -t tmpfs tmpfs /tmp 2>/dev/null; echo $?";
    let may = |spec: &mut mainstay_cells::ExecutableSpec| {
        spec.keep_capabilities = vec!["sys_admin".to_owned()];
    };
    assert_eq!(test.says_as("a", script, may).await, "0\n0\n");
    let filtered = test.says_as("a", script, |spec| {
        may(spec);
        spec.seccomp = "default".parse().unwrap();
    });
    let filtered = filtered.await;
    assert!(!filtered.lines().any(|code| code == "0"), "{filtered}");
    test.free_all().await;
}

#[tokio::test]
async fn root_of_a_cell_with_its_own_users_is_somebody_else_outside() {
    let test = TestCells::new("users");
    let spec = CellSpec {
        user_namespace: true,
        ..CellSpec::default()
    };
    test.allocate_as("a", spec).await;
    let open = tempfile::tempdir().unwrap();
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let file = open.path().join("made");
    let script = format!(
        "id -u; touch {}; echo made; exec sleep 1000",
        file.display()
    );
    let run = test.start_script("a", "x", &script).await;
    test.until_said("a", "x", "0\nmade\n").await;
    let made = file.metadata().unwrap();
    assert_eq!((made.uid(), made.gid()), (500_000, 500_000));
    let status = fs::read_to_string(format!("/proc/{}/status", run.pid)).unwrap();
    assert_eq!(field(&status, "Uid").split('\t').next(), Some("500000"));
    // What is root's outside is nobody's inside.
    let secret = open.path().join("secret");
    fs::write(&secret, "x").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let script = format!("cat {} 2>/dev/null && echo read; true", secret.display());
    assert_eq!(test.says("a", &script).await, "");
    test.free_all().await;
}

#[tokio::test]
async fn another_user_of_the_machine_reaches_neither_state_nor_control() {
    let test = TestCells::new("others");
    // All that keeps them away has to be the engine's own doing.
    fs::set_permissions(test.state(), fs::Permissions::from_mode(0o755)).unwrap();
    test.allocate("a").await;
    test.start("a", "x", "sleep 1000").await.unwrap();
    let cells = test.state().join("cells");
    let control = cells.join("cells/a/control");
    UnixStream::connect(&control).expect("root may");
    let tried = std::thread::spawn(move || {
        // Of this thread alone.
        set_thread_groups(&[]).unwrap();
        set_thread_gid(Gid::from_raw(NOBODY)).unwrap();
        set_thread_uid(Uid::from_raw(NOBODY)).unwrap();
        [
            UnixStream::connect(&control).map(drop),
            fs::read_dir(&cells).map(drop),
            fs::read_dir(cells.join("logs")).map(drop),
            fs::read(cells.join("executables/a_x.json")).map(drop),
        ]
    });
    for tried in tried.join().unwrap() {
        assert_eq!(
            tried.unwrap_err().kind(),
            std::io::ErrorKind::PermissionDenied
        );
    }
    test.free_all().await;
}

#[tokio::test]
async fn a_cell_does_not_answer_to_who_is_inside_it() {
    let test = TestCells::new("inside");
    // Sees the socket, being in the host's mounts, and is root.
    test.allocate_as("a", sharing([Namespace::Mount])).await;
    test.says("a", "true").await;
    let control = test.state().join("cells/cells/a/control");
    let program = std::env::current_exe().unwrap();
    let knock = test.start_as("a", "knock", "x", |spec| {
        let words = ["--ignored", "--exact", "--nocapture", "isolation::knock"];
        spec.words = vec![program.to_str().unwrap().to_owned()];
        spec.words.extend(words.map(str::to_owned));
        spec.environment = vec![format!("{CONTROL}={}", control.display())];
    });
    knock.await.unwrap();
    let (_, said) = test.ended("a", "knock").await;
    assert!(said.contains("hung up"), "{said}");
    // It answers everybody else as before.
    test.says("a", "true").await;
    test.cells.free(name("a")).await.unwrap();
}

const CONTROL: &str = "CELLS_TEST_CONTROL";

#[test]
#[ignore = "started by another test inside a cell"]
fn knock() {
    use std::io::Read;
    let path = std::env::var(CONTROL).expect("started by another test");
    let mut stream = UnixStream::connect(path).unwrap();
    // Whoever may talk is waited for, and much longer.
    let patience = std::time::Duration::from_secs(2);
    stream.set_read_timeout(Some(patience)).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    println!("hung up");
}
