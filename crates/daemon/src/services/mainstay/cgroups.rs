//! `Cgroups`: the tree of cgroups with usage and pressure.

use mainstay_api::mainstay::{
    Cgroup as WireCgroup, CgroupCpu, CgroupIo, CgroupMemory, CgroupPids, CgroupPressure, Cgroups,
    CgroupsRequest,
};
use mainstay_node::cgroups::{Cgroup, CgroupsError, Cpu, Io, Memory, Pids, Pressure, Selection};
use tonic::{Code, Status};

use crate::rpc::{fitting, reading};
use mainstay_error_chain::chain;

/// Cgroups of one answer; reading one takes about 20 files.
const MAX_CGROUPS: usize = 10_000;

pub(super) async fn cgroups(request: &CgroupsRequest) -> Result<Cgroups, Status> {
    let selection = Selection::new(&request.path, request.depth, MAX_CGROUPS).map_err(failed)?;
    reading("the cgroups", move || {
        let tree = selection.read().map_err(failed)?;
        let answer = Cgroups {
            metadata: None,
            mode: tree.mode.name().to_owned(),
            cgroups: tree.cgroups.into_iter().map(cgroup).collect(),
            truncated: tree.truncated,
        };
        fitting(answer, "cgroups")
    })
    .await
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: CgroupsError) -> Status {
    let code = match &error {
        CgroupsError::BadPath(_) => Code::InvalidArgument,
        CgroupsError::NotFound(_) => Code::NotFound,
        CgroupsError::NoHierarchy => Code::FailedPrecondition,
        CgroupsError::Io(_) => Code::Internal,
    };
    Status::new(code, chain(&error))
}

fn cgroup(cgroup: Cgroup) -> WireCgroup {
    let usage = cgroup.usage;
    WireCgroup {
        path: cgroup.path,
        depth: cgroup.depth,
        processes: usage.processes,
        cpu: usage.cpu.map(cpu),
        memory: usage.memory.map(memory),
        pids: usage
            .pids
            .map(|Pids { current, limit }| CgroupPids { current, limit }),
        io: usage.io.map(io),
        cpu_pressure: usage.cpu_pressure.map(pressure),
        memory_pressure: usage.memory_pressure.map(pressure),
        io_pressure: usage.io_pressure.map(pressure),
    }
}

fn cpu(cpu: Cpu) -> CgroupCpu {
    CgroupCpu {
        usage_nanos: cpu.usage_nanos,
        user_nanos: cpu.user_nanos,
        system_nanos: cpu.system_nanos,
        periods: cpu.periods,
        throttled_periods: cpu.throttled_periods,
        throttled_nanos: cpu.throttled_nanos,
        limit: cpu.limit,
    }
}

fn memory(memory: Memory) -> CgroupMemory {
    CgroupMemory {
        current_bytes: memory.current_bytes,
        limit_bytes: memory.limit_bytes,
        peak_bytes: memory.peak_bytes,
        anonymous_bytes: memory.anonymous_bytes,
        file_bytes: memory.file_bytes,
        swap_bytes: memory.swap_bytes,
        oom_kills: memory.oom_kills,
    }
}

fn io(io: Io) -> CgroupIo {
    CgroupIo {
        read_bytes: io.read_bytes,
        written_bytes: io.written_bytes,
        reads: io.reads,
        writes: io.writes,
    }
}

fn pressure(Pressure { some, full }: Pressure) -> CgroupPressure {
    CgroupPressure {
        some_avg10: some.avg10,
        some_avg60: some.avg60,
        some_avg300: some.avg300,
        some_total_micros: some.total_micros,
        full_avg10: full.avg10,
        full_avg60: full.avg60,
        full_avg300: full.avg300,
        full_total_micros: full.total_micros,
    }
}
