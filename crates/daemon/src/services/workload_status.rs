//! gRPC status of a failed workload operation.

use tonic::{Code, Status};

use super::{cells, containers, logs};
use crate::chain::chain;
use crate::workloads::WorkloadError;

pub(super) fn status(error: &WorkloadError) -> Status {
    use WorkloadError as Error;
    let code = match error {
        Error::Cell(error) => return cells::status(error),
        Error::Container(error) => return containers::status(error),
        Error::Log(error) => return logs::status(error),
        Error::NoSuchWorkload { .. }
        | Error::NoSuchLog { .. }
        | Error::NoLogFile { .. }
        | Error::NoSuchProcess { .. } => Code::NotFound,
        Error::NoPreviousRun | Error::NoPreviousLog { .. } => Code::InvalidArgument,
        Error::UnreadableLogFile { .. } | Error::NoTimestamps { .. } => Code::FailedPrecondition,
        Error::Interrupted { .. } => Code::Aborted,
        Error::Panicked { .. } => Code::Internal,
    };
    Status::new(code, chain(error))
}
