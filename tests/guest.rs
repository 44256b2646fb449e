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
