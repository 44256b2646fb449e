//! `mainstay cgroups`

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use clap::{Args, ValueEnum};
use mainstay_api::mainstay::node_service_client::NodeServiceClient;
use mainstay_api::mainstay::{Cgroup, CgroupPressure, Cgroups as NodeCgroups, CgroupsRequest};

use super::connect;
use crate::cli::{Format, Global};
use crate::failure::{Outcome, warn};
use crate::output;
use mainstay_client::Answer;
use mainstay_client::format::{Table, cpu_time, size};

/// Deeper cgroups are not indented further.
const MAX_INDENT: u32 = 24;

/// Show the tree of cgroups with usage and pressure
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay cgroups --depth 2\n  \
    mainstay cgroups /mainstay --sort memory     cells, the largest first\n  \
    mainstay cgroups -o json | jq '.[].cgroups[] | select(.memoryPressure.someAvg10 > 1) | .path'\n\n\
    Usage includes cgroups below; PROCS are the processes of the cgroup itself. The last columns\n\
    are pressure: the percentage of the last 10 s in which processes waited for CPU, memory or I/O.\n\
    A value that the kernel does not account for is shown as -.")]
pub struct Cgroups {
    /// Show this cgroup and those below it
    #[arg(value_name = "PATH", default_value = "/")]
    path: String,

    /// Show at most N levels below PATH [default: unlimited]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    depth: Option<u32>,

    /// Order of cgroups with the same parent
    #[arg(long, value_enum, default_value_t = Sort::Name)]
    sort: Sort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    Name,
    Cpu,
    Memory,
    Pids,
    Io,
}

impl Cgroups {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let request = CgroupsRequest {
            path: self.path.clone(),
            depth: self.depth.unwrap_or(0),
        };
        let mut answers = client
            .call_all(request, |_, request| {
                let mut node = NodeServiceClient::new(client.channel())
                    .max_decoding_message_size(mainstay_client::MAX_MESSAGE_BYTES);
                async move { node.cgroups(request).await }
            })
            .await?;
        for Answer { node, message } in &mut answers {
            message.cgroups = sorted(std::mem::take(&mut message.cgroups), self.sort);
            if message.truncated {
                let shown = message.cgroups.len();
                warn(&format!(
                    "node {node} has more than {shown} cgroups; name a PATH or a --depth"
                ));
            }
        }
        match global.output {
            Format::Table => client.print_table(table(answers))?,
            format => output::print_answers(format, "mainstay.Cgroups", &answers)?,
        }
        client.finish()
    }
}

/// Orders cgroups with the same parent; parents stay before their children.
fn sorted(cgroups: Vec<Cgroup>, sort: Sort) -> Vec<Cgroup> {
    if sort == Sort::Name {
        return cgroups;
    }
    let mut children: HashMap<String, Vec<Cgroup>> = HashMap::new();
    let mut roots = Vec::new();
    for cgroup in cgroups {
        match cgroup.depth {
            0 => roots.push(cgroup),
            _ => children
                .entry(parent(&cgroup.path).to_owned())
                .or_default()
                .push(cgroup),
        }
    }
    let key = |cgroup: &Cgroup| match sort {
        Sort::Name => 0,
        Sort::Cpu => cgroup.cpu.map_or(0, |cpu| cpu.usage_nanos),
        Sort::Memory => cgroup.memory.map_or(0, |memory| memory.current_bytes),
        Sort::Pids => cgroup.pids.map_or(0, |pids| pids.current),
        Sort::Io => cgroup
            .io
            .map_or(0, |io| io.read_bytes.saturating_add(io.written_bytes)),
    };
    let mut ordered = Vec::new();
    let mut pending = roots;
    pending.reverse();
    while let Some(cgroup) = pending.pop() {
        if let Some(mut below) = children.remove(&cgroup.path) {
            // Stable: equal ones stay sorted by name.
            below.sort_by_key(|cgroup| Reverse(key(cgroup)));
            pending.extend(below.into_iter().rev());
        }
        ordered.push(cgroup);
    }
    ordered
}

fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((parent, _)) => parent,
    }
}

fn table(answers: Vec<Answer<NodeCgroups>>) -> Table {
    let mut table = Table::new(&[
        "NODE", "CGROUP", "PROCS", "CPU", "MEMORY", "LIMIT", "PIDS", "READ", "WRITTEN", "CPU%",
        "MEM%", "IO%",
    ]);
    for Answer { node, message } in answers {
        for cgroup in message.cgroups {
            table.row(row(&node, &cgroup));
        }
    }
    table
}

fn row(node: &str, cgroup: &Cgroup) -> Vec<String> {
    let name = match (cgroup.depth, cgroup.path.rsplit_once('/')) {
        (0, _) | (_, None) => cgroup.path.as_str(),
        (_, Some((_, name))) => name,
    };
    let indent = usize::try_from(cgroup.depth.min(MAX_INDENT)).unwrap_or(0) * 2;
    let bytes = |value: Option<u64>| value.map_or_else(nothing, size);
    let cpu = cgroup.cpu.map(|cpu| Duration::from_nanos(cpu.usage_nanos));
    vec![
        node.to_owned(),
        format!("{:indent$}{name}", ""),
        cgroup.processes.to_string(),
        cpu.map_or_else(nothing, |time| cpu_time(time.as_secs_f64())),
        bytes(cgroup.memory.map(|memory| memory.current_bytes)),
        bytes(cgroup.memory.and_then(|memory| memory.limit_bytes)),
        cgroup
            .pids
            .map_or_else(nothing, |pids| pids.current.to_string()),
        bytes(cgroup.io.map(|io| io.read_bytes)),
        bytes(cgroup.io.map(|io| io.written_bytes)),
        pressure(cgroup.cpu_pressure),
        pressure(cgroup.memory_pressure),
        pressure(cgroup.io_pressure),
    ]
}

fn nothing() -> String {
    "-".to_owned()
}

fn pressure(pressure: Option<CgroupPressure>) -> String {
    pressure.map_or_else(nothing, |pressure| format!("{:.1}", pressure.some_avg10))
}

#[cfg(test)]
mod tests {
    use mainstay_api::mainstay::CgroupMemory;

    use super::*;

    fn cgroup(path: &str, depth: u32, memory: u64) -> Cgroup {
        Cgroup {
            path: path.to_owned(),
            depth,
            memory: Some(CgroupMemory {
                current_bytes: memory,
                ..CgroupMemory::default()
            }),
            ..Cgroup::default()
        }
    }

    #[test]
    fn siblings_are_sorted_below_their_parent() {
        let tree = vec![
            cgroup("/", 0, 9),
            cgroup("/a", 1, 1),
            cgroup("/a/x", 2, 0),
            cgroup("/b", 1, 5),
            cgroup("/b/x", 2, 1),
            cgroup("/b/y", 2, 4),
        ];
        let order = |sort| {
            let sorted = sorted(tree.clone(), sort).into_iter();
            sorted.map(|cgroup| cgroup.path).collect::<Vec<_>>()
        };
        assert_eq!(
            order(Sort::Memory),
            ["/", "/b", "/b/y", "/b/x", "/a", "/a/x"]
        );
        assert_eq!(order(Sort::Name)[1], "/a");
        assert_eq!(order(Sort::Cpu), order(Sort::Name));
    }

    #[test]
    fn the_table_is_a_tree() {
        let message = NodeCgroups {
            cgroups: vec![cgroup("/m", 0, 2048), cgroup("/m/a\x1b[2J", 1, 1)],
            ..NodeCgroups::default()
        };
        let answer = Answer {
            node: "n1".to_owned(),
            message,
        };
        insta::assert_snapshot!(table(vec![answer]), @r"
        NODE  CGROUP   PROCS  CPU  MEMORY   LIMIT  PIDS  READ  WRITTEN  CPU%  MEM%  IO%
        n1    /m       0      -    2.0 KiB  -      -     -     -        -     -     -
        n1      a?[2J  0      -    1 B      -      -     -     -        -     -     -
        ");
    }
}
