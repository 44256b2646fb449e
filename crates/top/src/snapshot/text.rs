//! A snapshot as tables: everything of one node, or one row per node.

use crate::app::App;
use crate::model::{Node, NodeState, Reading};
use crate::rates::percent_of;
use crate::view::{percent, rate};
use mainstay_client::format::{Table, cpu_time, size};

pub fn text(app: &App) -> String {
    match app.nodes.as_slice() {
        [node] => {
            let parts = [
                summary(node),
                disks(node),
                mounts(node),
                network(node),
                services(node),
                workloads(node),
                processes(app, node),
            ];
            let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            parts.join("\n")
        }
        nodes => overview(nodes),
    }
}

fn share(value: Option<f64>) -> String {
    percent(value).trim_start().to_owned()
}

fn summary(node: &Node) -> String {
    let mut table = Table::new(&["NODE", &node.name]);
    let mut line = |name: &str, text: String| table.row(vec![name.to_owned(), text]);
    if let Some(hostname) = node.hostname.known() {
        line("hostname", hostname.clone());
    }
    if let Some(version) = node.version.known().and_then(|v| v.version.as_ref()) {
        line("version", version.tag.clone());
    }
    if let Some([one, five, fifteen]) = node.load.known() {
        line("load", format!("{one:.2} {five:.2} {fifteen:.2}"));
    }
    if let Some(cpu) = node.cpu.known() {
        let total = cpu.total;
        let text = format!(
            "{} of {} cores: user {}, system {}, wait {}",
            share(total.map(|total| total.busy)),
            cpu.cores.len(),
            share(total.map(|total| total.user)),
            share(total.map(|total| total.system)),
            share(total.map(|total| total.iowait)),
        );
        line("cpu", text);
    }
    if let Some(memory) = node.memory.known() {
        let used = share(memory.percent());
        line("memory", format!("{used} of {}", size(memory.total())));
        let swap = share(percent_of(
            memory.swap_used() as f64,
            memory.swap_total() as f64,
        ));
        line("swap", format!("{swap} of {}", size(memory.swap_total())));
    }
    table.to_string()
}

fn disks(node: &Node) -> String {
    let Some(disks) = node.disks.known() else {
        return unavailable("disks", &node.disks);
    };
    let mut table = Table::new(&["DISK", "READ", "WRITTEN", "BUSY"]);
    for disk in &disks.devices {
        table.row(vec![
            disk.name.clone(),
            rate(disk.traffic.map(|traffic| traffic.inward)),
            rate(disk.traffic.map(|traffic| traffic.outward)),
            share(disk.busy),
        ]);
    }
    table.to_string()
}

fn mounts(node: &Node) -> String {
    let Some(mounts) = node.mounts.known() else {
        return unavailable("mounts", &node.mounts);
    };
    let mut table = Table::new(&["MOUNTED ON", "USE", "USED", "SIZE", "FILESYSTEM"]);
    for mount in mounts {
        table.row(vec![
            mount.mounted_on.clone(),
            share(Some(mount.percent())),
            size(mount.used),
            size(mount.size),
            mount.filesystem.clone(),
        ]);
    }
    table.to_string()
}

fn network(node: &Node) -> String {
    let Some(network) = node.network.known() else {
        return unavailable("network", &node.network);
    };
    let mut table = Table::new(&["NETWORK", "IN", "OUT"]);
    for device in &network.devices {
        table.row(vec![
            device.name.clone(),
            rate(device.traffic.map(|traffic| traffic.inward)),
            rate(device.traffic.map(|traffic| traffic.outward)),
        ]);
    }
    table.to_string()
}

fn services(node: &Node) -> String {
    let Some(list) = node.services.known() else {
        return unavailable("services", &node.services);
    };
    let mut table = Table::new(&["SERVICE", "STATE", "HEALTH"]);
    for service in &list.services {
        let health = match service.health.as_ref().filter(|health| !health.unknown) {
            None => "-",
            Some(health) if health.healthy => "healthy",
            Some(_) => "unhealthy",
        };
        table.row(vec![
            service.id.clone(),
            service.state.clone(),
            health.to_owned(),
        ]);
    }
    table.to_string()
}

fn workloads(node: &Node) -> String {
    let Some(workloads) = node.workloads.known() else {
        return unavailable("containers", &node.workloads);
    };
    if workloads.list.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["NAMESPACE", "CONTAINER", "STATUS", "CPU", "MEMORY"]);
    for workload in &workloads.list {
        table.row(vec![
            workload.info.namespace.clone(),
            workload.info.id.clone(),
            workload.info.status.clone(),
            share(workload.cpu),
            workload.memory_bytes.map_or_else(|| "-".to_owned(), size),
        ]);
    }
    table.to_string()
}

fn processes(app: &App, node: &Node) -> String {
    let Some(processes) = node.processes.known() else {
        return unavailable("processes", &node.processes);
    };
    let header = [
        "PID", "USER", "S", "THREADS", "CPU", "RESIDENT", "TIME", "READ", "WRITE", "COMMAND",
    ];
    let mut table = Table::new(&header);
    let ordered = app.processes.iter();
    for process in ordered.filter_map(|index| processes.list.get(*index)) {
        table.row(vec![
            process.info.pid.to_string(),
            process.user(),
            process.info.state.clone(),
            process.info.threads.to_string(),
            share(process.cpu),
            size(process.info.resident_memory),
            cpu_time(process.info.cpu_time),
            rate(process.read),
            rate(process.write),
            process.command_line(),
        ]);
    }
    table.to_string()
}

/// Returns the reason why a reading is unavailable.
fn unavailable<T>(name: &str, reading: &Reading<T>) -> String {
    match reading {
        Reading::Unavailable(reason) => {
            let mut table = Table::new(&[name, "unavailable"]);
            table.row(vec![String::new(), reason.clone()]);
            table.to_string()
        }
        Reading::Pending | Reading::Known(_) => String::new(),
    }
}

fn overview(nodes: &[Node]) -> String {
    let header = [
        "NODE",
        "CPU",
        "MEMORY",
        "LOAD",
        "NET IN",
        "NET OUT",
        "DISK",
        "PROCESSES",
        "STATE",
    ];
    let mut table = Table::new(&header);
    for node in nodes {
        let cpu = node.cpu.known().and_then(|cpu| cpu.total);
        let network = node.network.known().and_then(|network| network.total);
        let disks = node.disks.known().and_then(|disks| disks.total);
        let count = node.processes.known().map(|all| all.list.len().to_string());
        let load = node.load.known().map(|[one, ..]| format!("{one:.2}"));
        table.row(vec![
            node.name.clone(),
            share(cpu.map(|total| total.busy)),
            share(node.memory.known().and_then(|memory| memory.percent())),
            load.unwrap_or_else(|| "-".to_owned()),
            rate(network.map(|traffic| traffic.inward)),
            rate(network.map(|traffic| traffic.outward)),
            rate(disks.map(|traffic| traffic.inward + traffic.outward)),
            count.unwrap_or_else(|| "-".to_owned()),
            match &node.state {
                NodeState::Pending => "asked".to_owned(),
                NodeState::Up => "up".to_owned(),
                NodeState::Lost { reason, .. } => format!("lost: {reason}"),
            },
        ]);
    }
    table.to_string()
}
