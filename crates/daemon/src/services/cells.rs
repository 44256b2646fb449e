//! `runtime.CellService`: isolated executables.

use std::sync::Arc;
use std::time::Duration;

use mainstay_api::runtime::cell_service_server::CellService;
use mainstay_api::runtime::{
    AllocateCellRequest, AllocateCellResponse, Cell, CellLimits, Executable, FreeCellRequest,
    FreeCellResponse, IoLimit, ListCellsRequest, ListCellsResponse, StartCellRequest,
    StartCellResponse, StopCellRequest, StopCellResponse,
};
use mainstay_cells::capabilities::CapabilityError;
use mainstay_cells::{
    CellError, CellName, CellSpec, CpuList, CpuMax, CpuShares, Device, ExecutableName,
    ExecutableSpec, IoLimits, IoRates, Limits, MemoryLimits, Namespace, StopOptions,
};
use rustix::process::Signal;
use tonic::{Code, Request, Response, Status};

use super::cell_status;
use crate::chain::chain;
use crate::node::Node;

#[derive(Debug, Clone)]
pub(super) struct Cells {
    pub(super) node: Arc<Node>,
}

impl Cells {
    pub(super) fn new(node: &Arc<Node>) -> Self {
        Self {
            node: Arc::clone(node),
        }
    }
}

#[tonic::async_trait]
impl CellService for Cells {
    async fn allocate(
        &self,
        request: Request<AllocateCellRequest>,
    ) -> Result<Response<AllocateCellResponse>, Status> {
        let cell = request.into_inner().cell.unwrap_or_default();
        let name = cell_name(&cell.name)?;
        let spec = blocking_spec(cell).await?;
        let made = self.node.engines.cells.allocate(name.clone(), spec).await;
        let made = made.map_err(|error| status(&error))?;
        Ok(Response::new(AllocateCellResponse {
            cell_name: name.to_string(),
            cgroup_v2: made.cgroup_v2,
        }))
    }

    async fn free(
        &self,
        request: Request<FreeCellRequest>,
    ) -> Result<Response<FreeCellResponse>, Status> {
        let name = cell_name(&request.into_inner().cell_name)?;
        let freed = self.node.engines.cells.free(name).await;
        freed.map_err(|error| status(&error))?;
        Ok(Response::new(FreeCellResponse {}))
    }

    async fn start(
        &self,
        request: Request<StartCellRequest>,
    ) -> Result<Response<StartCellResponse>, Status> {
        let executable = request.into_inner().executable.unwrap_or_default();
        let cell = cell_name(&executable.cell_name)?;
        let name = executable_name(&executable.name)?;
        let words = ExecutableSpec::split(&executable.command).map_err(invalid)?;
        let spec = executable_spec(executable, words)?;
        let run = self.node.engines.cells.start(cell, name, spec).await;
        let run = run.map_err(|error| status(&error))?;
        Ok(Response::new(StartCellResponse {
            pid: run.pid,
            uid: run.uid,
            gid: run.gid,
        }))
    }

    async fn stop(
        &self,
        request: Request<StopCellRequest>,
    ) -> Result<Response<StopCellResponse>, Status> {
        let request = request.into_inner();
        let cell = cell_name(&request.cell_name)?;
        let executable = match request.executable_name.as_str() {
            "" => None,
            name => Some(executable_name(name)?),
        };
        let how = StopOptions {
            signal: signal(request.signal)?,
            grace: request.grace.map(grace).transpose()?,
        };
        let stopped = self.node.engines.cells.stop(cell, executable, how).await;
        stopped.map_err(|error| status(&error))?;
        Ok(Response::new(StopCellResponse {}))
    }

    async fn list(
        &self,
        request: Request<ListCellsRequest>,
    ) -> Result<Response<ListCellsResponse>, Status> {
        let top = match request.into_inner().cell_name.as_str() {
            "" => None,
            name => Some(cell_name(name)?),
        };
        let cells = cell_status::tree(&self.node.engines.cells, top.as_ref());
        if let (Some(top), true) = (top, cells.is_empty()) {
            return Err(status(&CellError::NoSuchCell { cell: top }));
        }
        Ok(Response::new(ListCellsResponse { cells }))
    }
}

pub(super) fn cell_name(name: &str) -> Result<CellName, Status> {
    name.parse().map_err(invalid)
}

pub(super) fn executable_name(name: &str) -> Result<ExecutableName, Status> {
    name.parse().map_err(invalid)
}

/// Looking at a device may block.
async fn blocking_spec(cell: Cell) -> Result<CellSpec, Status> {
    let spec = tokio::task::spawn_blocking(move || cell_spec(&cell)).await;
    spec.unwrap_or_else(|_| Err(Status::internal("reading the limits failed")))
}

fn cell_spec(cell: &Cell) -> Result<CellSpec, Status> {
    let share = cell.share.iter().map(|number| namespace(*number));
    Ok(CellSpec {
        limits: limits(cell.cpu_shares, &cell.limits.clone().unwrap_or_default())?,
        share: share.collect::<Result<_, _>>()?,
        user_namespace: cell.user_namespace,
        hostname: (!cell.hostname.is_empty()).then(|| cell.hostname.clone()),
    })
}

fn limits(cpu_shares: u64, asked: &CellLimits) -> Result<Limits, Status> {
    let list = |text: &str| match text {
        "" => Ok(None),
        text => CpuList::new(text).map(Some),
    };
    let some = |number: u64| (number != 0).then_some(number);
    let period = some(asked.cpu_period_usec);
    let io = asked.io.iter().map(io_limit).collect::<Result<_, _>>()?;
    Ok(Limits {
        cpu_shares: CpuShares::new(cpu_shares).map_err(invalid)?,
        cpu_max: CpuMax::new(asked.cpu_max_usec, period).map_err(invalid)?,
        cpus: list(&asked.cpus).map_err(invalid)?,
        mems: list(&asked.mems).map_err(invalid)?,
        memory: MemoryLimits {
            min: some(asked.memory_min),
            low: some(asked.memory_low),
            high: some(asked.memory_high),
            max: some(asked.memory_max),
        },
        pids: some(asked.pids_max),
        io: IoLimits::new(io).map_err(invalid)?,
    })
}

fn io_limit(asked: &IoLimit) -> Result<mainstay_cells::IoLimit, Status> {
    let some = |number: u64| (number != 0).then_some(number);
    let rates = IoRates {
        read_bytes: some(asked.read_bytes),
        write_bytes: some(asked.write_bytes),
        read_operations: some(asked.read_operations),
        write_operations: some(asked.write_operations),
    };
    let device = Device::find(&asked.device).map_err(invalid)?;
    mainstay_cells::IoLimit::new(device, rates).map_err(invalid)
}

fn namespace(number: i32) -> Result<Namespace, Status> {
    use mainstay_api::runtime::Namespace as Asked;
    match Asked::try_from(number) {
        Ok(Asked::Network) => Ok(Namespace::Network),
        Ok(Asked::Ipc) => Ok(Namespace::Ipc),
        Ok(Asked::Uts) => Ok(Namespace::Uts),
        Ok(Asked::Pid) => Ok(Namespace::Pid),
        Ok(Asked::Mount) => Ok(Namespace::Mount),
        Ok(Asked::Cgroup) => Ok(Namespace::Cgroup),
        Ok(Asked::Unspecified) | Err(_) => Err(Status::invalid_argument(format!(
            "{number} is no namespace; 1 to 6 are network, ipc, uts, pid, mount and cgroup"
        ))),
    }
}

fn executable_spec(executable: Executable, words: Vec<String>) -> Result<ExecutableSpec, Status> {
    let directory = executable.working_directory;
    Ok(ExecutableSpec {
        command: executable.command,
        words,
        description: executable.description,
        uid: executable.uid,
        gid: executable.gid,
        environment: executable.environment,
        working_directory: (!directory.is_empty()).then_some(directory),
        keep_capabilities: executable.keep_capabilities,
        allow_new_privileges: executable.allow_new_privileges,
        seccomp: executable.seccomp.parse().map_err(said)?,
    })
}

fn signal(number: i32) -> Result<Option<Signal>, Status> {
    if number == 0 {
        return Ok(None);
    }
    let signal = Signal::from_named_raw(number);
    let bad = || Status::invalid_argument(format!("{number} is no signal; 15 is SIGTERM"));
    signal.map(Some).ok_or_else(bad)
}

fn grace(grace: prost_types::Duration) -> Result<Duration, Status> {
    /// Nobody waits longer than a day for anything to end.
    const MOST: Duration = Duration::from_secs(24 * 60 * 60);
    let seconds = u64::try_from(grace.seconds).ok();
    let nanos = u32::try_from(grace.nanos).ok();
    let grace = seconds.zip(nanos).and_then(|(seconds, nanos)| {
        let grace = Duration::from_secs(seconds).checked_add(Duration::from_nanos(nanos.into()))?;
        (grace <= MOST).then_some(grace)
    });
    grace.ok_or_else(|| Status::invalid_argument("grace is a time from 0 to 24 hours"))
}

pub(super) fn invalid(error: impl std::fmt::Display) -> Status {
    Status::invalid_argument(error.to_string())
}

/// An invalid argument, with its cause.
fn said(error: impl std::error::Error + 'static) -> Status {
    invalid(chain(&error))
}

pub(super) fn status(error: &CellError) -> Status {
    use CellError as Error;
    let code = match error {
        Error::Spec(_) | Error::Seccomp(_) => Code::InvalidArgument,
        Error::Capabilities(CapabilityError::Unknown { .. }) => Code::InvalidArgument,
        Error::Capabilities(_) => Code::FailedPrecondition,
        Error::NoSuchCell { .. }
        | Error::NoSuchExecutable { .. }
        | Error::ProgramNotFound { .. } => Code::NotFound,
        Error::CellExists { .. } | Error::AlreadyRunning { .. } => Code::AlreadyExists,
        Error::ForeignCgroup { .. }
        | Error::Unreadable { .. }
        | Error::NotRoot
        | Error::Cgroup(_)
        | Error::WorkingDirectory { .. }
        | Error::ExecFailed { .. } => Code::FailedPrecondition,
        Error::ProgramNotPermitted { .. } => Code::PermissionDenied,
        Error::TooManyProcesses { .. } => Code::ResourceExhausted,
        Error::Unkillable { .. } => Code::DeadlineExceeded,
        Error::Interrupted { .. } => Code::Aborted,
        Error::NotStarted { .. }
        | Error::NotIsolated { .. }
        | Error::NoShim { .. }
        | Error::ShimUnresponsive { .. }
        | Error::ShimFailed { .. }
        | Error::RecordIo { .. } => Code::Internal,
    };
    Status::new(code, chain(error))
}
