//! Isolation of executables: what they can see, reach and change.

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
/// Namespaces by their names in `/proc/self/ns`.
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
async fn only_processes_of_the_cell_are_visible_and_pid_1_is_not_the_shim() {
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
    assert_eq!(names, BTreeSet::from(["mainstay-init", "sh"]));
    assert_eq!(said.lines().last(), Some("mainstay-init"));
    // PID 1 cannot be killed from inside.
    test.says("a", "kill -9 1; kill -STOP 1; test -d /proc/1")
        .await;
    test.says("a", "true").await;
    test.free_all().await;
}

#[tokio::test]
async fn every_namespace_is_its_own_unless_shared() {
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
        // Refused on its own: it requires a shared mount namespace.
        share.extend((shared == Namespace::Pid).then_some(Namespace::Mount));
        let spec = sharing(share.clone());
        test.allocate_as(kind, spec).await;
        let said = test.says(kind, script).await;
        for (line, (namespace, kind)) in said.lines().zip(NAMESPACES) {
            // The host's mounts are shared as a copy, in which private keys are hidden.
            let is_shared = share.contains(&namespace) && namespace != Namespace::Mount;
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
async fn two_cells_share_no_namespace() {
    let test = TestCells::new("two");
    let script = "for each in net ipc uts pid mnt; do readlink /proc/self/ns/$each; done";
    test.allocate("a").await;
    test.allocate("a/b").await;
    let (outer, inner) = (test.says("a", script).await, test.says("a/b", script).await);
    for (outer, inner) in outer.lines().zip(inner.lines()) {
        assert_ne!(outer, inner);
    }
    // Nor the namespaces of another cell.
    test.says("a", "echo x >/dev/shm/left").await;
    assert_eq!(test.says("a/b", "ls -A /dev/shm").await, "");
    test.says("a", "rm -f /dev/null; echo x >/dev/left; true")
        .await;
    test.says("a/b", "test -c /dev/null && ! test -e /dev/left")
        .await;
    test.free_all().await;
}

#[tokio::test]
async fn the_host_name_is_the_label_or_the_requested_one() {
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
async fn its_network_is_a_loopback_device_that_is_up() {
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
async fn its_cgroup_namespace_is_rooted_at_its_own_cgroup() {
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
async fn its_mounts_do_not_propagate_to_the_host() {
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
async fn the_state_directory_is_unreachable_from_inside() {
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
    // The script finds it where it is not hidden.
    assert_eq!(fs::read_dir(state).unwrap().count(), 1);
    test.free_all().await;
}

#[tokio::test]
async fn an_executable_inherits_only_its_output() {
    let test = TestCells::new("descriptors");
    test.allocate("a").await;
    // The fourth is the listed directory itself.
    assert_eq!(test.says("a", "ls /proc/self/fd").await, "0\n1\n2\n3\n");
    let said = test
        .says("a", "readlink /proc/self/fd/0; cat; echo end")
        .await;
    assert_eq!(said, "/dev/null\nend\n");
    test.free_all().await;
}

#[tokio::test]
async fn host_wide_settings_are_read_only_inside() {
    on_every_kind("read-only", async |test| {
        test.allocate("a").await;
        let layout = Layout::detect().unwrap();
        let trees = layout.v1.values().chain(&layout.unified);
        let groups: Vec<String> = trees
            .map(|tree| tree.join(test.cgroup()).display().to_string())
            .filter(|root| Path::new(root).exists())
            .collect();
        assert!(!groups.is_empty());
        // Only opened for writing; nothing is written.
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
async fn no_disk_can_be_opened_inside() {
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
async fn its_capabilities_are_the_default_and_cannot_grow() {
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
async fn it_runs_with_the_requested_user_directory_and_environment() {
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
    // Without a shell, which adds variables.
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
async fn the_default_profile_refuses_mounts_despite_capabilities() {
    let test = TestCells::new("seccomp");
    test.allocate("a").await;
    let script =
        "unshare -m true 2>/dev/null; echo $?; mount -t tmpfs tmpfs /tmp 2>/dev/null; echo $?";
    let may = |spec: &mut mainstay_cells::ExecutableSpec| {
        spec.keep_capabilities = vec!["sys_admin".to_owned()];
    };
    let unconfined = test.says_as("a", script, |spec| {
        may(spec);
        spec.seccomp = "unconfined".parse().unwrap();
    });
    assert_eq!(unconfined.await, "0\n0\n");
    let filtered = test.says_as("a", script, may).await;
    assert!(!filtered.lines().any(|code| code == "0"), "{filtered}");
    test.free_all().await;
}

#[tokio::test]
async fn root_in_a_user_namespace_is_unprivileged_outside() {
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
    // Files of the host's root belong to the overflow UID inside.
    let secret = open.path().join("secret");
    fs::write(&secret, "x").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let script = format!("cat {} 2>/dev/null && echo read; true", secret.display());
    assert_eq!(test.says("a", &script).await, "");
    test.free_all().await;
}

#[tokio::test]
async fn an_unprivileged_user_reaches_neither_state_nor_control_socket() {
    let test = TestCells::new("others");
    // The test directory itself must not be what refuses access.
    fs::set_permissions(test.state(), fs::Permissions::from_mode(0o755)).unwrap();
    test.allocate("a").await;
    test.start("a", "x", "sleep 1000").await.unwrap();
    let cells = test.state().join("cells");
    let control = cells.join("cells/a/control");
    UnixStream::connect(&control).expect("root may");
    let tried = std::thread::spawn(move || {
        // Changes the credentials of this thread alone.
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
async fn a_shim_refuses_connections_from_inside_its_cell() {
    let test = TestCells::new("inside");
    test.allocate("a").await;
    test.says("a", "true").await;
    // The state is hidden inside; a hard link is the socket elsewhere.
    let elsewhere = tempfile::tempdir().unwrap();
    let control = elsewhere.path().join("control");
    fs::hard_link(test.state().join("cells/cells/a/control"), &control).unwrap();
    let program = std::env::current_exe().unwrap();
    let connect_to_control_socket = test.start_as("a", "connect_to_control_socket", "x", |spec| {
        let words = [
            "--ignored",
            "--exact",
            "--nocapture",
            "isolation::connect_to_control_socket",
        ];
        spec.words = vec![program.to_str().unwrap().to_owned()];
        spec.words.extend(words.map(str::to_owned));
        spec.environment = vec![format!("{CONTROL}={}", control.display())];
    });
    connect_to_control_socket.await.unwrap();
    let (_, said) = test.ended("a", "connect_to_control_socket").await;
    assert!(said.contains("hung up"), "{said}");
    // The shim still serves the daemon.
    test.says("a", "true").await;
    test.cells.free(name("a")).await.unwrap();
}

const CONTROL: &str = "CELLS_TEST_CONTROL";

#[test]
#[ignore = "started by another test inside a cell"]
fn connect_to_control_socket() {
    use std::io::Read;
    let path = std::env::var(CONTROL).expect("started by another test");
    let mut stream = UnixStream::connect(path).unwrap();
    // A permitted peer would be waited for, much longer than this.
    let patience = std::time::Duration::from_secs(2);
    stream.set_read_timeout(Some(patience)).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    println!("hung up");
}
