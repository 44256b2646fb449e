//! `aurae.cells.v0.CellService`: cells for later clients.

use std::collections::BTreeSet;

use mainstay_api::aurae::cells::v0::cell_service_server::CellService;
use mainstay_api::aurae::cells::v0::{
    Cell, CellGraphNode, CellServiceAllocateRequest, CellServiceAllocateResponse,
    CellServiceFreeRequest, CellServiceFreeResponse, CellServiceListRequest,
    CellServiceListResponse, CellServiceStartRequest, CellServiceStartResponse,
    CellServiceStopRequest, CellServiceStopResponse, CpuController, CpusetController,
    MemoryController,
};
use mainstay_cells::{
    BadLimit, CellSpec, CellStatus, CpuList, CpuMax, CpuShares, ExecutableSpec, Limits,
    MemoryLimits, Namespace, StopOptions,
};
use tonic::{Request, Response, Status};

use crate::rpc::status::{self, invalid};
use crate::services::runtime::{CellCalls, cell_name, executable_name};

/// The namespaces that a cell without process isolation shares with the host.
const OF_PROCESSES: [Namespace; 4] = [
    Namespace::Pid,
    Namespace::Mount,
    Namespace::Ipc,
    Namespace::Uts,
];

#[tonic::async_trait]
impl CellService for CellCalls {
    async fn allocate(
        &self,
        request: Request<CellServiceAllocateRequest>,
    ) -> Result<Response<CellServiceAllocateResponse>, Status> {
        let cell = request.into_inner().cell.unwrap_or_default();
        let name = cell_name(&cell.name)?;
        let made = self
            .node
            .engines
            .cells
            .allocate(name.clone(), spec(&cell)?)
            .await;
        let made = made.map_err(|error| status::of_cells(&error))?;
        Ok(Response::new(CellServiceAllocateResponse {
            cell_name: name.to_string(),
            cgroup_v2: made.cgroup_v2,
        }))
    }

    async fn free(
        &self,
        request: Request<CellServiceFreeRequest>,
    ) -> Result<Response<CellServiceFreeResponse>, Status> {
        let name = cell_name(&request.into_inner().cell_name)?;
        let freed = self.node.engines.cells.free(name).await;
        freed.map_err(|error| status::of_cells(&error))?;
        Ok(Response::new(CellServiceFreeResponse {}))
    }

    async fn start(
        &self,
        request: Request<CellServiceStartRequest>,
    ) -> Result<Response<CellServiceStartResponse>, Status> {
        let request = request.into_inner();
        let cell = cell_name(request.cell_name())?;
        let (uid, gid) = (request.uid, request.gid);
        let executable = request.executable.unwrap_or_default();
        let name = executable_name(&executable.name)?;
        if executable.command.trim().is_empty() {
            return Err(Status::invalid_argument("no command is given"));
        }
        // Here a shell reads the command, which is what these clients write for.
        let words = ["/bin/sh", "-c", &executable.command];
        let spec = ExecutableSpec {
            words: words.map(str::to_owned).to_vec(),
            command: executable.command,
            description: executable.description,
            uid,
            gid,
            ..ExecutableSpec::default()
        };
        let run = self.node.engines.cells.start(cell, name, spec).await;
        let run = run.map_err(|error| status::of_cells(&error))?;
        Ok(Response::new(CellServiceStartResponse {
            pid: run.pid,
            uid: run.uid,
            gid: run.gid,
        }))
    }

    async fn stop(
        &self,
        request: Request<CellServiceStopRequest>,
    ) -> Result<Response<CellServiceStopResponse>, Status> {
        let request = request.into_inner();
        let cell = cell_name(request.cell_name())?;
        // Never all of them: an empty name is a field that the client forgot.
        let executable = executable_name(&request.executable_name)?;
        let stopped = self
            .node
            .engines
            .cells
            .stop(cell, Some(executable), StopOptions::default());
        stopped.await.map_err(|error| status::of_cells(&error))?;
        Ok(Response::new(CellServiceStopResponse {}))
    }

    async fn list(
        &self,
        _: Request<CellServiceListRequest>,
    ) -> Result<Response<CellServiceListResponse>, Status> {
        let mut cells = Vec::new();
        for status in self.node.engines.cells.list() {
            place(&mut cells, &shown(&status));
        }
        Ok(Response::new(CellServiceListResponse { cells }))
    }
}

fn spec(cell: &Cell) -> Result<CellSpec, Status> {
    let mut share = BTreeSet::new();
    if !cell.isolate_process {
        share.extend(OF_PROCESSES);
    }
    if !cell.isolate_network {
        share.insert(Namespace::Network);
    }
    let cpu = cell.cpu.unwrap_or_default();
    let cpuset = cell.cpuset.clone().unwrap_or_default();
    let memory = cell.memory.unwrap_or_default();
    // An empty list is an unset one, as in the kernel.
    let list = |text: &Option<String>| {
        let text = text.as_deref().filter(|text| !text.is_empty());
        text.map(CpuList::new).transpose()
    };
    let bytes = |number: Option<i64>| {
        let number = number.map(u64::try_from).transpose();
        number.map_err(|_| invalid(BadLimit::NegativeMemory))
    };
    if cpu.max.is_none() && cpu.period.is_some() {
        return Err(invalid(BadLimit::PeriodWithoutQuota));
    }
    let max = cpu.max.map(|max| CpuMax::limited(max, cpu.period));
    let memory = MemoryLimits {
        min: bytes(memory.min)?,
        low: bytes(memory.low)?,
        high: bytes(memory.high)?,
        max: bytes(memory.max)?,
    };
    Ok(CellSpec {
        limits: Limits {
            cpu_shares: cpu
                .weight
                .map(CpuShares::from_weight)
                .transpose()
                .map_err(invalid)?,
            cpu_max: max.transpose().map_err(invalid)?,
            cpus: list(&cpuset.cpus).map_err(invalid)?,
            mems: list(&cpuset.mems).map_err(invalid)?,
            memory: memory.check().map_err(invalid)?,
            ..Limits::default()
        },
        share,
        ..CellSpec::default()
    })
}

fn shown(status: &CellStatus) -> Cell {
    let limits = &status.cell.spec.limits;
    let shares = |namespace| status.cell.spec.share.contains(&namespace);
    let bytes = |number: Option<u64>| number.and_then(|number| i64::try_from(number).ok());
    let text = |list: &Option<CpuList>| list.as_ref().map(|list| list.as_str().to_owned());
    let cpu = CpuController {
        weight: limits.cpu_shares.map(CpuShares::weight),
        max: limits.cpu_max.and_then(|max| i64::try_from(max.quota).ok()),
        period: limits.cpu_max.and_then(CpuMax::requested_period),
    };
    let cpuset = CpusetController {
        cpus: text(&limits.cpus),
        mems: text(&limits.mems),
    };
    let memory = MemoryController {
        min: bytes(limits.memory.min),
        low: bytes(limits.memory.low),
        high: bytes(limits.memory.high),
        max: bytes(limits.memory.max),
    };
    Cell {
        name: status.cell.name.to_string(),
        cpu: (cpu != CpuController::default()).then_some(cpu),
        cpuset: (cpuset != CpusetController::default()).then_some(cpuset),
        memory: (memory != MemoryController::default()).then_some(memory),
        isolate_process: !shares(Namespace::Pid),
        isolate_network: !shares(Namespace::Network),
    }
}

/// Inserts a cell into its parent, which precedes it in the list.
fn place(among: &mut Vec<CellGraphNode>, cell: &Cell) {
    let around = among.iter_mut().find(|node| {
        let name = node.cell.as_ref().map_or("", |cell| cell.name.as_str());
        let rest = cell.name.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with('/'))
    });
    match around {
        Some(around) => place(&mut around.children, cell),
        None => among.push(CellGraphNode {
            cell: Some(cell.clone()),
            children: Vec::new(),
        }),
    }
}
