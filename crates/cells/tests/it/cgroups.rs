//! Real cgroups in the hierarchies of this machine, each test below its own root.

use std::fs;
use std::process::{Child, Command, Stdio};

use mainstay_cells::cgroup::{CgroupError, Cgroups, Controller, Layout};
use mainstay_cells::{CpuMax, CpuShares, Device, IoLimit, IoLimits, IoRates, Limits, MemoryLimits};

/// Cgroups that are removed when the test ends or panics.
struct TestGroups {
    groups: Cgroups,
    layout: Layout,
    root: String,
}

/// Runs a test with this machine's cgroup layout, and on a hybrid machine also with v1 alone.
fn on_every_kind(name: &str, test: impl Fn(&TestGroups)) {
    let layout = Layout::detect().unwrap();
    if !layout.v1.is_empty() && layout.unified.is_some() {
        let v1 = Layout {
            unified: None,
            ..layout.clone()
        };
        test(&TestGroups::new(&format!("{name}-v1"), v1));
    }
    test(&TestGroups::new(name, layout));
}

impl TestGroups {
    fn new(name: &str, layout: Layout) -> Self {
        let root = format!("mainstay-test-{}-{name}", std::process::id());
        Self {
            groups: Cgroups::new(layout.clone(), &root).unwrap(),
            layout,
            root,
        }
    }

    /// Reads a file of the cgroup in the hierarchy of a controller.
    fn value(&self, controller: Controller, group: &str, v1: &str, v2: &str) -> String {
        let (tree, file) = match self.layout.v1.get(&controller) {
            Some(tree) => (tree, v1),
            None => (self.layout.unified.as_ref().unwrap(), v2),
        };
        let path = tree.join(&self.root).join(group).join(file);
        fs::read_to_string(path).unwrap().trim().to_owned()
    }

    fn trees(&self) -> impl Iterator<Item = &std::path::PathBuf> {
        self.layout.v1.values().chain(&self.layout.unified)
    }
}

impl Drop for TestGroups {
    fn drop(&mut self) {
        let trees: Vec<_> = self.trees().cloned().collect();
        for tree in trees {
            remove(&tree.join(&self.root));
        }
    }
}

fn remove(path: &std::path::Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove(&entry.path());
        }
    }
    let _ = fs::remove_dir(path);
}

fn sleeper() -> Child {
    // Exits with the test at the latest, at EOF of its input.
    Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn enter(groups: &TestGroups, group: &str, child: &Child) {
    use std::io::Write;
    let entry = groups.groups.entry_fds(group).unwrap();
    let pid = child.id().to_string();
    for mut procs in entry.procs {
        procs.write_all(pid.as_bytes()).unwrap();
    }
    if let Some(unified) = groups.layout.unified.as_ref() {
        let procs = unified.join(&groups.root).join(group).join("cgroup.procs");
        fs::write(procs, pid).unwrap();
    }
}

#[test]
fn a_cgroup_gets_its_limits_and_is_removed() {
    on_every_kind("limits", |test| {
        let limits = Limits {
            cpu_shares: CpuShares::new(512).unwrap(),
            cpu_max: CpuMax::new(20_000, Some(50_000)).unwrap(),
            memory: MemoryLimits {
                max: Some(64 << 20),
                ..MemoryLimits::default()
            },
            pids: Some(17),
            ..Limits::default()
        };
        test.groups.create("a", &limits).unwrap();
        assert!(test.groups.exists("a"));
        let pids = test.value(Controller::Pids, "a", "pids.max", "pids.max");
        assert_eq!(pids, "17");
        let memory = test.value(
            Controller::Memory,
            "a",
            "memory.limit_in_bytes",
            "memory.max",
        );
        assert_eq!(memory, (64 << 20).to_string());
        let shares = test.value(Controller::Cpu, "a", "cpu.shares", "cpu.weight");
        assert!(shares == "512" || shares == "20", "{shares}");
        test.groups.remove("a").unwrap();
        assert!(!test.groups.exists("a"));
        for tree in test.trees() {
            assert!(!tree.join(&test.root).join("a").exists());
        }
    });
}

/// A disk of this machine, if it has one.
fn disk() -> Option<Device> {
    let any = fs::read_dir("/sys/dev/block").unwrap().next()?.unwrap();
    Some(Device::find(any.file_name().to_str().unwrap()).unwrap())
}

#[test]
fn a_cgroup_gets_its_io_limits() {
    on_every_kind("io", |test| {
        let Some(device) = disk() else {
            println!("skipped: this machine has no block device (a test guest has none)");
            return;
        };
        let rates = IoRates {
            read_bytes: Some(1 << 20),
            write_operations: Some(77),
            ..IoRates::default()
        };
        let limit = IoLimit::new(device, rates).unwrap();
        let limits = Limits {
            io: IoLimits::new(vec![limit]).unwrap(),
            ..Limits::default()
        };
        test.groups.create("a", &limits).unwrap();
        let value = |v1: &str| test.value(Controller::Io, "a", v1, "io.max");
        let v2 = format!("{device} rbps=1048576 wbps=max riops=max wiops=77");
        let read = value("blkio.throttle.read_bps_device");
        assert!(read == format!("{device} 1048576") || read == v2, "{read}");
        let write = value("blkio.throttle.write_iops_device");
        assert!(write == format!("{device} 77") || write == v2, "{write}");
        test.groups.remove("a").unwrap();
    });
}

#[test]
fn a_limit_of_a_missing_device_leaves_no_cgroup() {
    on_every_kind("no-device", |test| {
        let device = Device::new(4095, 0).unwrap();
        let rates = IoRates {
            read_bytes: Some(1),
            ..IoRates::default()
        };
        let limit = IoLimit::new(device, rates).unwrap();
        let limits = Limits {
            io: IoLimits::new(vec![limit]).unwrap(),
            ..Limits::default()
        };
        let error = test.groups.create("a", &limits).unwrap_err();
        assert!(error.to_string().contains("4095:0"), "{error}");
        assert!(!test.groups.exists("a"));
    });
}

#[test]
fn only_hierarchies_with_a_limit_get_a_directory() {
    on_every_kind("lean", |test| {
        test.groups.create("a", &Limits::default()).unwrap();
        let made = test
            .trees()
            .filter(|tree| tree.join(&test.root).join("a").exists())
            .collect::<std::collections::BTreeSet<_>>();
        assert_eq!(made.len(), 1);
        test.groups.remove("a").unwrap();
    });
}

#[test]
fn an_existing_cgroup_is_not_taken_over() {
    on_every_kind("taken", |test| {
        test.groups.create("a", &Limits::default()).unwrap();
        let again = test.groups.create("a", &Limits::default());
        assert!(
            matches!(again, Err(CgroupError::Exists { .. })),
            "{again:?}"
        );
        assert!(test.groups.exists("a"), "and it is not removed either");
    });
}

#[test]
fn a_refused_limit_leaves_no_cgroup() {
    on_every_kind("refused", |test| {
        let limits = Limits {
            cpus: Some(mainstay_cells::CpuList::new("9999").unwrap()),
            ..Limits::default()
        };
        let error = test.groups.create("a", &limits).unwrap_err();
        assert!(error.to_string().contains("cpuset.cpus"), "{error}");
        assert!(!test.groups.exists("a"));
    });
}

#[test]
fn a_nested_cgroup_is_within_the_limits_of_its_parent() {
    on_every_kind("nested", |test| {
        let limits = Limits {
            pids: Some(5),
            ..Limits::default()
        };
        test.groups.create("a", &limits).unwrap();
        test.groups.create("a/b", &Limits::default()).unwrap();
        let mut child = sleeper();
        enter(test, "a/b", &child);
        let cgroups = fs::read_to_string(format!("/proc/{}/cgroup", child.id())).unwrap();
        let inside = |controller: &str, group: &str| {
            let line = cgroups.lines().find(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                parts
                    .next()
                    .unwrap()
                    .split(',')
                    .any(|name| name == controller)
            });
            line.is_some_and(|line| line.ends_with(&format!("{}/{group}", test.root)))
        };
        // v2 has one line without a controller's name. With v1 alone, the pids hierarchy tracks
        // membership.
        assert!(inside("", "a/b") || inside("pids", "a/b"), "{cgroups}");
        assert!(
            inside("pids", "a") || inside("", "a/b") || inside("pids", "a/b"),
            "{cgroups}"
        );
        assert_eq!(test.groups.processes("a/b").unwrap().len(), 1);
        assert_eq!(test.groups.processes("a").unwrap().len(), 0);

        // Killing the parent kills nested processes.
        test.groups.kill("a").unwrap();
        let status = child.wait().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9)
        );
        test.groups.remove("a/b").unwrap();
        test.groups.remove("a").unwrap();
    });
}

#[test]
fn a_missing_cgroup_can_be_removed_and_killed() {
    on_every_kind("gone", |test| {
        test.groups.remove("a").unwrap();
        test.groups.kill("a").unwrap();
        assert!(test.groups.processes("a").unwrap().is_empty());
        assert!(test.groups.entry_fds("a").is_err());
    });
}
