//! Cells and their executables as callers see them.

use mainstay_api::runtime::{
    Cell, CellLimits, CellStatus, Executable, ExecutableState, ExecutableStatus, IoLimit,
    Namespace, TerminalSize,
};
use mainstay_cells::{
    CellName, CellSpec, Cells, ExecutableName, ExecutableRecord, ExitStatus, Limits,
};
use prost_types::Timestamp;

use crate::workloads::ExecutableId;

/// Returns all cells, or one, with the cells nested in them.
pub fn tree(cells: &Cells, top: Option<&CellName>) -> Vec<CellStatus> {
    let mut roots: Vec<CellStatus> = Vec::new();
    // The list is sorted by name: a parent comes before the cells nested in it.
    for status in cells.list() {
        let name = status.cell.name.clone();
        if top.is_some_and(|top| name != *top && !name.is_inside(top)) {
            continue;
        }
        let unreadable = status.unreadable_executables.iter();
        let unreadable =
            unreadable.map(|(executable, reason)| unreadable_executable(&name, executable, reason));
        let executables = status.executables.iter().map(executable).chain(unreadable);
        let shown = CellStatus {
            cell: Some(cell(&name, &status.cell.spec)),
            cgroup_v2: status.cgroup_v2,
            // Only the name is known of an unreadable cell.
            allocated: status
                .unreadable
                .is_none()
                .then(|| timestamp(status.cell.allocated)),
            executables: executables.collect(),
            children: Vec::new(),
            shim_pid: status.shim_pid.unwrap_or(0),
            unreadable: status.unreadable.unwrap_or_default(),
        };
        place(&mut roots, &name, shown);
    }
    roots
}

fn place(among: &mut Vec<CellStatus>, name: &CellName, status: CellStatus) {
    let around = among.iter_mut().find(|other| {
        let other = other.cell.as_ref().map_or("", |cell| cell.name.as_str());
        let rest = name.as_str().strip_prefix(other);
        rest.is_some_and(|rest| rest.starts_with('/'))
    });
    match around {
        Some(around) => place(&mut around.children, name, status),
        None => among.push(status),
    }
}

fn cell(name: &CellName, spec: &CellSpec) -> Cell {
    use mainstay_cells::Namespace as Shared;
    let share = spec.share.iter().map(|shared| match shared {
        Shared::Network => Namespace::Network,
        Shared::Ipc => Namespace::Ipc,
        Shared::Uts => Namespace::Uts,
        Shared::Pid => Namespace::Pid,
        Shared::Mount => Namespace::Mount,
        Shared::Cgroup => Namespace::Cgroup,
    });
    Cell {
        name: name.to_string(),
        cpu_shares: spec.limits.cpu_shares.map_or(0, |shares| shares.shares()),
        limits: (spec.limits != Limits::default()).then(|| limits(&spec.limits)),
        share: share.map(Into::into).collect(),
        user_namespace: spec.user_namespace,
        hostname: spec.hostname.clone().unwrap_or_default(),
    }
}

fn limits(limits: &Limits) -> CellLimits {
    let list = |list: &Option<mainstay_cells::CpuList>| {
        list.as_ref()
            .map_or_else(String::new, |list| list.as_str().to_owned())
    };
    let io = limits.io.iter().map(|limit| IoLimit {
        device: limit.device().to_string(),
        read_bytes: limit.rates().read_bytes.unwrap_or(0),
        write_bytes: limit.rates().write_bytes.unwrap_or(0),
        read_operations: limit.rates().read_operations.unwrap_or(0),
        write_operations: limit.rates().write_operations.unwrap_or(0),
    });
    CellLimits {
        cpu_max_usec: limits
            .cpu_max
            .map_or(0, |max| i64::try_from(max.quota).unwrap_or(i64::MAX)),
        cpu_period_usec: limits.cpu_max.map_or(0, |max| max.period),
        cpus: list(&limits.cpus),
        mems: list(&limits.mems),
        memory_min: limits.memory.min.unwrap_or(0),
        memory_low: limits.memory.low.unwrap_or(0),
        memory_high: limits.memory.high.unwrap_or(0),
        memory_max: limits.memory.max.unwrap_or(0),
        pids_max: limits.pids.unwrap_or(0),
        io: io.collect(),
    }
}

fn executable(record: &ExecutableRecord) -> ExecutableStatus {
    let run = &record.run;
    let spec = &record.spec;
    // Names only: values may be secrets, which a reader of the list may not see.
    let names = spec.environment.iter().map(|variable| {
        let name = variable.split('=').next().unwrap_or_default();
        name.to_owned()
    });
    let (state, exit_code, signal, oom_killed) = match run.end.map(|end| end.status) {
        None => (ExecutableState::Running, 0, 0, false),
        Some(ExitStatus::Exited(code)) => (ExecutableState::Exited, code, 0, false),
        Some(ExitStatus::Killed { signal, oom_killed }) => {
            (ExecutableState::Exited, 128 + signal, signal, oom_killed)
        }
        Some(ExitStatus::Lost) => (ExecutableState::Lost, 0, 0, false),
    };
    ExecutableStatus {
        executable: Some(Executable {
            name: record.name.to_string(),
            command: spec.command.clone(),
            description: spec.description.clone(),
            cell_name: record.cell.to_string(),
            uid: spec.uid,
            gid: spec.gid,
            environment: names.collect(),
            working_directory: spec.working_directory.clone().unwrap_or_default(),
            keep_capabilities: spec.keep_capabilities.clone(),
            allow_new_privileges: spec.allow_new_privileges,
            seccomp: spec.seccomp.as_str().to_owned(),
            stdin: spec.stdin,
            terminal: spec.terminal.map(|size| TerminalSize {
                rows: size.rows.into(),
                columns: size.columns.into(),
            }),
        }),
        state: state.into(),
        pid: run.pid,
        uid: run.uid,
        gid: run.gid,
        started: Some(timestamp(run.started)),
        ended: run.end.map(|end| timestamp(end.at)),
        exit_code,
        signal,
        oom_killed,
        runs: record.runs,
        log: ExecutableId::of(record).to_string(),
        unreadable: String::new(),
    }
}

fn unreadable_executable(
    cell: &CellName,
    executable: &ExecutableName,
    reason: &str,
) -> ExecutableStatus {
    let id = ExecutableId {
        cell: cell.clone(),
        executable: executable.clone(),
    };
    ExecutableStatus {
        executable: Some(Executable {
            name: executable.to_string(),
            cell_name: cell.to_string(),
            ..Executable::default()
        }),
        log: id.to_string(),
        unreadable: reason.to_owned(),
        ..ExecutableStatus::default()
    }
}

fn timestamp(nanos: i64) -> Timestamp {
    const SECOND: i64 = 1_000_000_000;
    Timestamp {
        seconds: nanos.div_euclid(SECOND),
        nanos: i32::try_from(nanos.rem_euclid(SECOND)).unwrap_or(0),
    }
}
