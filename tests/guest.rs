//! On a machine of its own with cgroup v2 alone.

use mainstay_testkit::{Guest, binary, require, tests_of};

#[test]
fn cells_work_with_cgroup_v2_alone() {
    require!(Guest);
    let guest = Guest::boot(&[("mainstay", &binary()), ("test-cells", &tests_of("cells"))]);
    it_has_cgroup_v2_alone(&guest);
    its_root_can_be_replaced(&guest);
    output_comes_back_as_it_was(&guest);
    the_tests_of_cells_pass(&guest);
    a_node_serves(&guest);
    kernel_threads_have_no_executable_and_no_arguments(&guest);
    guest.stop("node", "TERM").ok();
}

/// Here, because the clock of this machine is not for tests to set.
#[test]
fn timers_follow_a_clock_that_is_set() {
    require!(Guest);
    let guest = Guest::boot(&[("mainstay", &binary())]);
    guest.start("node", "ready in", "mainstay serve --state /state");
    let schedule = |arguments: &str| {
        let socket = "-e unix:/state/run/mainstay.sock";
        guest
            .run(&format!("mainstay schedule {socket} {arguments}"))
            .ok()
    };
    let wait = |name: &str, action: &str| {
        let events = "mainstay events -o json -f --tail -1 -e unix:/state/run/mainstay.sock";
        let words = format!("\"schedule/{name}\",\"action\":\"{action}\"");
        guest.start("events", &words, events);
        guest.stop("events", "TERM");
    };
    let job = "--cell jobs --allocate -- true";
    schedule(&format!(
        "add-timer soon --calendar '2040-01-01 00:00' {job}"
    ));
    schedule(&format!(
        "add-timer owed --calendar '2040-06-01 00:00' --catch-up {job}"
    ));
    schedule(&format!(
        "add-timer left-out --calendar '2040-06-01 00:00' {job}"
    ));
    // The time comes a second later, not in the fourteen years that were waited for.
    guest.run("date -u -s '2039-12-31 23:59:59'").ok();
    wait("soon", "FINISHED");
    let runs = schedule("list -o json");
    let runs: serde_json::Value = serde_json::from_str(&runs).unwrap();
    let of = |all: &serde_json::Value, name: &str| {
        let mut all = all.as_array().unwrap().iter();
        let one = all.find(|one| one["schedule"]["name"] == name).cloned();
        let one = one.unwrap();
        let runs = one["runs"].as_array().map_or(0, Vec::len);
        (runs, one["missed"].as_u64().unwrap_or(0))
    };
    assert_eq!(of(&runs, "soon"), (1, 0));
    assert_eq!(of(&runs, "owed"), (0, 0));
    // Times that are jumped over are made up for if that was asked for.
    guest.run("date -u -s '2041-01-01 00:00:00'").ok();
    wait("owed", "SKIPPED");
    wait("left-out", "SKIPPED");
    wait("owed", "FINISHED");
    let runs: serde_json::Value = serde_json::from_str(&schedule("list -o json")).unwrap();
    assert_eq!(of(&runs, "owed"), (1, 1));
    assert_eq!(of(&runs, "left-out"), (0, 1));
}

fn it_has_cgroup_v2_alone(guest: &Guest) {
    let mounts = guest.run("grep -w 'cgroup2*' /proc/mounts").ok();
    assert!(
        mounts.starts_with("cgroup2 /sys/fs/cgroup cgroup2 "),
        "{mounts}"
    );
    assert_eq!(mounts.lines().count(), 1, "{mounts}");
    let controllers = guest.run("cat /sys/fs/cgroup/cgroup.controllers").ok();
    for controller in ["cpu", "cpuset", "io", "memory", "pids"] {
        let all = controllers.split_whitespace();
        assert!(
            all.into_iter().any(|one| one == controller),
            "{controllers}"
        );
    }
}

fn its_root_can_be_replaced(guest: &Guest) {
    let script = "
        mount --make-rprivate /
        mkdir /tmp/root
        mount -t tmpfs tmpfs /tmp/root
        cd /tmp/root
        mkdir bin old
        cp /bin/busybox bin/sh
        pivot_root . old
        exec sh -c 'echo /*'";
    let seen = guest.run(&format!("unshare -m sh -e -c \"{script}\"")).ok();
    assert_eq!(seen, "/bin /old\n");
}

fn output_comes_back_as_it_was(guest: &Guest) {
    let answer = guest.run("seq 1 20000\nprintf 'over\\nthere' >&2\nexit 7");
    let numbers: String = (1..=20_000).map(|number| format!("{number}\n")).collect();
    assert!(answer.stdout == numbers, "{} bytes", answer.stdout.len());
    assert_eq!(answer.failed(7), "over\nthere");
}

fn the_tests_of_cells_pass(guest: &Guest) {
    let said = guest.run("test-cells --test-threads 2").ok();
    assert!(!said.contains("running 0 tests"), "{said}");
}

fn a_node_serves(guest: &Guest) {
    guest.start("node", "ready in", "mainstay serve --state /state");
    let version = guest.run("mainstay version -e unix:/state/run/mainstay.sock -o json");
    let version = version.json();
    assert_eq!(
        version["server"][0]["version"]["tag"],
        version["client"]["tag"]
    );
}

/// Here and not with the other tests of processes: a container shows no kernel threads.
fn kernel_threads_have_no_executable_and_no_arguments(guest: &Guest) {
    let processes = guest.run("mainstay ps -e unix:/state/run/mainstay.sock -o json");
    let processes = processes.json();
    let processes = processes[0]["processes"].as_array().unwrap();
    let kthreadd = processes.iter().find(|process| process["pid"] == 2);
    let kthreadd = kthreadd.expect("kthreadd is PID 2");
    assert_eq!(kthreadd["command"], "kthreadd");
    for field in ["executable", "args"] {
        let text = kthreadd[field].as_str().unwrap_or_default();
        assert_eq!(text, "", "{kthreadd}");
    }
}
