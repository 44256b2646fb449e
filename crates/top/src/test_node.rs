//! A fixed node for tests of the model and the view.

use std::time::Duration;

use mainstay_api::machine::{
    CpUsInfo, CpuInfo, CpuStat, DiskStat, DiskStats, Hostname, LoadAvg, LogsContainer, MountStat,
    Mounts, NetDev, NetworkDeviceStats, ServiceEvent, ServiceEvents, ServiceHealth, ServiceInfo,
    ServiceList, SystemStat, Version, VersionInfo,
};
use mainstay_api::os::{self, ContainerInfo, MemInfo, ProcessInfo, Stat};

use super::model::{Round, WorkloadAnswers};

const MIB: u64 = 1 << 20;

/// Returns the round of a busy machine with `cores` CPUs at `second`.
pub fn round(second: u32, cores: u32) -> Round {
    let seconds = f64::from(second);
    let at = Duration::from_secs(second.into());
    let count = u64::from(second);
    Round {
        at,
        hostname: Some(Ok(Hostname {
            metadata: None,
            hostname: "orchard".to_owned(),
        })),
        version: Some(Ok(Version {
            version: Some(VersionInfo {
                tag: "v0.1.0".to_owned(),
                ..VersionInfo::default()
            }),
            ..Version::default()
        })),
        cpu_info: Some(Ok(CpUsInfo {
            metadata: None,
            cpu_info: vec![CpuInfo {
                model_name: "Sample 3000 @ 2.10GHz".to_owned(),
                ..CpuInfo::default()
            }],
        })),
        load: Some(Ok(LoadAvg {
            metadata: None,
            load1: 1.43,
            load5: 1.16,
            load15: 0.64,
        })),
        system: Some(Ok(system(seconds, cores))),
        memory: Some(Ok(memory())),
        disks: Some(Ok(disks(count))),
        mounts: Some(Ok(mounts())),
        network: Some(Ok(network(count))),
        processes: Some(Ok(os::Process {
            metadata: None,
            processes: processes(seconds),
        })),
        services: Some(Ok(services())),
        workloads: Some(Ok(workloads(count))),
        logs: Some(Ok(LogsContainer {
            metadata: None,
            ids: vec!["audit".to_owned(), "mainstay".to_owned()],
        })),
    }
}

fn system(seconds: f64, cores: u32) -> SystemStat {
    let core = |number: u32| {
        // Each a little busier than the one before.
        let user = 0.15 * f64::from(number % 7 + 1);
        CpuStat {
            user: user * seconds,
            system: 0.1 * seconds,
            iowait: 0.02 * seconds,
            idle: (0.88 - user).max(0.0) * seconds,
            ..CpuStat::default()
        }
    };
    SystemStat {
        boot_time: 1_000_000,
        cpu_total: Some(core(2)),
        cpu: (0..cores).map(core).collect(),
        ..SystemStat::default()
    }
}

fn memory() -> os::Memory {
    os::Memory {
        metadata: None,
        meminfo: Some(MemInfo {
            memtotal: 16 * MIB,
            memavailable: 6 * MIB,
            memfree: MIB,
            buffers: 300 * 1024,
            cached: 5 * MIB,
            swaptotal: 2 * MIB,
            swapfree: 2 * MIB - 40_000,
            ..MemInfo::default()
        }),
    }
}

fn disks(second: u64) -> DiskStats {
    let disk = |name: &str, read: u64, written: u64| DiskStat {
        name: name.to_owned(),
        read_completed: 1,
        read_sectors: read * second,
        write_sectors: written * second,
        io_time_ms: 310 * second,
        ..DiskStat::default()
    };
    DiskStats {
        devices: vec![
            disk("nvme0n1", 6400, 1800),
            disk("nvme0n1p1", 6400, 1800),
            disk("sda", 0, 24),
        ],
        ..DiskStats::default()
    }
}

fn mounts() -> Mounts {
    let mount = |filesystem: &str, size: u64, available: u64, mounted_on: &str| MountStat {
        filesystem: filesystem.to_owned(),
        size,
        available,
        mounted_on: mounted_on.to_owned(),
        ..MountStat::default()
    };
    Mounts {
        metadata: None,
        stats: vec![
            mount("/dev/nvme0n1p1", 480 << 30, 300 << 30, "/"),
            mount("/dev/sda", 4 << 40, 200 << 30, "/var/lib/containers"),
            mount("tmpfs", 8 << 30, 8 << 30, "/dev/shm"),
            mount("proc", 0, 0, "/proc"),
        ],
    }
}

fn network(second: u64) -> NetworkDeviceStats {
    let device = |name: &str, received: u64, sent: u64| NetDev {
        name: name.to_owned(),
        rx_bytes: received * second,
        tx_bytes: sent * second,
        ..NetDev::default()
    };
    NetworkDeviceStats {
        devices: vec![
            device("lo", 5000, 5000),
            device("eth0", 1_300_000, 42_000),
            device("veth12ab", 900, 800),
        ],
        ..NetworkDeviceStats::default()
    }
}

fn processes(seconds: f64) -> Vec<ProcessInfo> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole seconds of a test"
    )]
    let bytes = seconds as u64;
    let named = |pid: i32, command: &str, args: &str, share: f64, resident: u64| ProcessInfo {
        pid,
        ppid: 1,
        state: if share > 0.5 { "R" } else { "S" }.to_owned(),
        threads: pid % 17 + 1,
        cpu_time: 10.0 + share * seconds,
        resident_memory: resident * MIB,
        virtual_memory: resident * 4 * MIB,
        command: command.to_owned(),
        args: args.to_owned(),
        uid: Some(if pid > 1000 { 33 } else { 0 }),
        user: if pid > 1000 {
            "www-data-writer"
        } else {
            "root"
        }
        .to_owned(),
        read_bytes: (!args.is_empty()).then_some(bytes * 1024),
        write_bytes: (!args.is_empty()).then_some(bytes * 3072),
        ..ProcessInfo::default()
    };
    let mut processes = vec![
        named(1, "init", "/sbin/init splash", 0.0, 12),
        named(2, "kthreadd", "", 0.0, 0),
        named(1207, "postgres", "postgres: writer process", 0.314, 812),
        named(
            2048,
            "web",
            "/usr/bin/web --port 8080 --workers 16",
            1.72,
            2304,
        ),
        named(3001, "evil", "evil \x1b[2J\u{202e}name", 0.05, 3),
    ];
    let workers = (0..40).map(|number| {
        let args = format!("/usr/libexec/worker --queue {number}");
        named(
            5000 + number,
            "worker",
            &args,
            0.001 * f64::from(number),
            20,
        )
    });
    processes.extend(workers);
    processes
}

fn workloads(second: u64) -> WorkloadAnswers {
    let info = |namespace: &str, id: &str, pid: u32, status: &str| ContainerInfo {
        namespace: namespace.to_owned(),
        id: id.to_owned(),
        pid,
        status: status.to_owned(),
        ..ContainerInfo::default()
    };
    let stat = |namespace: &str, id: &str, memory: u64, percent: u64| Stat {
        namespace: namespace.to_owned(),
        id: id.to_owned(),
        memory_usage: memory * MIB,
        cpu_usage: percent * 10_000_000 * second,
        ..Stat::default()
    };
    WorkloadAnswers {
        containers: os::Container {
            metadata: None,
            containers: vec![
                info("default", "database", 1207, "RUNNING"),
                info("default", "migration", 0, "STOPPED"),
                info("mainstay", "web/server\u{1b}[2J", 2048, "RUNNING"),
            ],
        },
        stats: os::Stats {
            metadata: None,
            stats: vec![
                stat("default", "database", 812, 31),
                stat("mainstay", "web/server\u{1b}[2J", 2304, 172),
            ],
        },
    }
}

fn services() -> ServiceList {
    let service = |id: &str, state: &str, health: Option<(bool, &str)>, said: &str| ServiceInfo {
        id: id.to_owned(),
        state: state.to_owned(),
        events: Some(ServiceEvents {
            events: vec![ServiceEvent {
                msg: said.to_owned(),
                state: state.to_owned(),
                ts: None,
            }],
        }),
        health: health.map(|(healthy, said)| ServiceHealth {
            unknown: false,
            healthy,
            last_message: said.to_owned(),
            last_change: None,
        }),
    };
    ServiceList {
        metadata: None,
        services: vec![
            service("containerd", "Running", Some((true, "")), "started"),
            service(
                "kubelet",
                "Running",
                Some((false, "connection refused")),
                "started",
            ),
            service("ntp", "Finished", None, "the clock is set"),
            service("udev", "Failed", None, "exited with code 1"),
        ],
    }
}
