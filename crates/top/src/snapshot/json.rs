//! A snapshot as one JSON document with an object per node. A value that is not known yet is null;
//! `withheld` holds the reason for each value that the node refused.

use mainstay_api::machine::ServiceList;
use serde_json::{Map, Value, json};

use mainstay_client::format::to_json;

use crate::app::App;
use crate::model::{
    Cpu, Disks, Memory, Mount, Network, Node, NodeState, Processes, Reading, Workloads,
};
use crate::rates::CpuUsage;

pub fn json(app: &App) -> Value {
    app.nodes.iter().map(node).collect()
}

fn node(node: &Node) -> Value {
    let mut entry = Map::new();
    entry.insert("node".to_owned(), json!(node.name));
    let (state, reason) = match &node.state {
        NodeState::Pending => ("asked", None),
        NodeState::Up => ("live", None),
        NodeState::Lost { reason, .. } => ("lost", Some(reason)),
    };
    entry.insert("state".to_owned(), json!(state));
    if let Some(reason) = reason {
        entry.insert("error".to_owned(), json!(reason));
    }
    let mut withheld = Map::new();
    let mut add = |name: &str, reading: Result<Option<Value>, &str>| match reading {
        Ok(value) => {
            entry.insert(name.to_owned(), value.unwrap_or(Value::Null));
        }
        Err(reason) => {
            withheld.insert(name.to_owned(), json!(reason));
        }
    };
    add("hostname", known(&node.hostname, |name| json!(name)));
    add(
        "version",
        known(&node.version, |message| {
            let version = message.version.as_ref();
            json!(version.map(|version| &version.tag))
        }),
    );
    add("boot_time", known(&node.cpu, |cpu| json!(cpu.boot_time())));
    add("load", known(&node.load, |load| json!(load)));
    add("cpu_model", known(&node.cpu_model, |model| json!(model)));
    add("cpu", known(&node.cpu, cpu));
    add("memory", known(&node.memory, memory));
    add("disks", known(&node.disks, disks));
    add(
        "mounts",
        known(&node.mounts, |mounts| mounts.iter().map(mount).collect()),
    );
    add("network", known(&node.network, network));
    add("services", known(&node.services, services));
    add("workloads", known(&node.workloads, workloads));
    add("processes", known(&node.processes, processes));
    entry.insert("withheld".to_owned(), Value::Object(withheld));
    Value::Object(entry)
}

fn known<T>(reading: &Reading<T>, show: impl FnOnce(&T) -> Value) -> Result<Option<Value>, &str> {
    match reading {
        Reading::Pending => Ok(None),
        Reading::Known(value) => Ok(Some(show(value))),
        Reading::Unavailable(reason) => Err(reason),
    }
}

fn cpu(cpu: &Cpu) -> Value {
    json!({
        "total": cpu.total.map(share),
        "cores": cpu.cores.iter().map(|core| core.map(share)).collect::<Vec<_>>(),
    })
}

fn share(usage: CpuUsage) -> Value {
    json!({
        "busy_percent": usage.busy,
        "user_percent": usage.user,
        "system_percent": usage.system,
        "waiting_percent": usage.iowait,
        "stolen_percent": usage.steal,
    })
}

fn memory(memory: &Memory) -> Value {
    json!({
        "total_bytes": memory.total(),
        "used_bytes": memory.used(),
        "available_bytes": memory.available(),
        "cache_bytes": memory.cache(),
        "buffers_bytes": memory.buffers(),
        "swap_total_bytes": memory.swap_total(),
        "swap_used_bytes": memory.swap_used(),
    })
}

fn disks(disks: &Disks) -> Value {
    let devices = disks.devices.iter().map(|disk| {
        json!({
            "name": disk.name,
            "read_bytes_per_second": disk.traffic.map(|traffic| traffic.inward),
            "written_bytes_per_second": disk.traffic.map(|traffic| traffic.outward),
            "busy_percent": disk.busy,
        })
    });
    devices.collect()
}

fn mount(mount: &Mount) -> Value {
    json!({
        "filesystem": mount.filesystem,
        "mounted_on": mount.mounted_on,
        "size_bytes": mount.size,
        "used_bytes": mount.used,
    })
}

fn network(network: &Network) -> Value {
    let devices = network.devices.iter().map(|device| {
        json!({
            "name": device.name,
            "in_bytes_per_second": device.traffic.map(|traffic| traffic.inward),
            "out_bytes_per_second": device.traffic.map(|traffic| traffic.outward),
        })
    });
    devices.collect()
}

fn services(list: &ServiceList) -> Value {
    let services = list.services.iter();
    services
        .map(|service| to_json("machine.ServiceInfo", service))
        .collect()
}

fn workloads(workloads: &Workloads) -> Value {
    let list = workloads.list.iter().map(|workload| {
        json!({
            "namespace": workload.info.namespace,
            "id": workload.info.id,
            "image": workload.info.image,
            "pid": workload.info.pid,
            "status": workload.info.status,
            "cpu_percent": workload.cpu,
            "memory_bytes": workload.memory_bytes,
        })
    });
    list.collect()
}

fn processes(processes: &Processes) -> Value {
    let list = processes.list.iter().map(|process| {
        json!({
            "pid": process.info.pid,
            "ppid": process.info.ppid,
            "state": process.info.state,
            "user": process.user(),
            "threads": process.info.threads,
            "cpu_percent": process.cpu,
            "cpu_seconds": process.info.cpu_time,
            "read_bytes_per_second": process.read,
            "written_bytes_per_second": process.write,
            "resident_bytes": process.info.resident_memory,
            "virtual_bytes": process.info.virtual_memory,
            "command": process.info.command,
            "args": process.info.args,
        })
    });
    list.collect()
}
