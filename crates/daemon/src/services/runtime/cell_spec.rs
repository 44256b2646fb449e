//! Cells and executables as callers specify them.

use std::time::Duration;

use mainstay_api::runtime::{Cell, CellLimits, Executable, IoLimit, TerminalSize};
use mainstay_cells::{
    CellName, CellSpec, CpuList, CpuMax, CpuShares, Device, ExecutableName, ExecutableSpec,
    IoLimits, IoRates, Limits, MemoryLimits, Namespace,
};
use rustix::process::Signal;
use tonic::Status;

use crate::rpc::status::invalid;

pub fn cell_name(name: &str) -> Result<CellName, Status> {
    name.parse().map_err(invalid)
}

pub fn executable_name(name: &str) -> Result<ExecutableName, Status> {
    name.parse().map_err(invalid)
}

/// Converts a cell; looking up a device may block.
pub async fn read_cell_spec(cell: Cell) -> Result<CellSpec, Status> {
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
            "{number} is not a namespace; 1 to 6 are network, ipc, uts, pid, mount and cgroup"
        ))),
    }
}

pub fn executable_spec(
    executable: Executable,
    words: Vec<String>,
) -> Result<ExecutableSpec, Status> {
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
        seccomp: executable.seccomp.parse().map_err(invalid)?,
        stdin: executable.stdin,
        terminal: executable.terminal.map(terminal_size).transpose()?,
        ..ExecutableSpec::default()
    })
}

pub fn terminal_size(size: TerminalSize) -> Result<mainstay_cells::TerminalSize, Status> {
    let number = |number: u32| u16::try_from(number).ok().filter(|number| *number > 0);
    match (number(size.rows), number(size.columns)) {
        (Some(rows), Some(columns)) => Ok(mainstay_cells::TerminalSize { rows, columns }),
        _ => Err(Status::invalid_argument(format!(
            "{} rows and {} columns are not a size of a terminal; each is 1 to 65535",
            size.rows, size.columns
        ))),
    }
}

pub fn signal(number: i32) -> Result<Option<Signal>, Status> {
    if number == 0 {
        return Ok(None);
    }
    let signal = Signal::from_named_raw(number);
    let bad = || Status::invalid_argument(format!("{number} is not a signal; 15 is SIGTERM"));
    signal.map(Some).ok_or_else(bad)
}

pub fn grace(grace: prost_types::Duration) -> Result<Duration, Status> {
    const MAX_GRACE: Duration = Duration::from_secs(24 * 60 * 60);
    let seconds = u64::try_from(grace.seconds).ok();
    let nanos = u32::try_from(grace.nanos).ok();
    let grace = seconds.zip(nanos).and_then(|(seconds, nanos)| {
        let grace = Duration::from_secs(seconds).checked_add(Duration::from_nanos(nanos.into()))?;
        (grace <= MAX_GRACE).then_some(grace)
    });
    grace.ok_or_else(|| Status::invalid_argument("grace is a duration from 0 to 24 hours"))
}
