//! Errors of engines as gRPC status: the code for programs, the whole cause chain for people.

use std::io;
use std::path::Path;

use mainstay_cells::CellError;
use mainstay_cells::capabilities::CapabilityError;
use mainstay_containers::ContainerError;
use mainstay_error_chain::chain;
use mainstay_journal::{EventError, LogError};
use mainstay_lifecycle::StartError;
use mainstay_schedule::ScheduleError;
use mainstay_slots::{ImageError, SlotsError};
use mainstay_supervisor::ServiceError;
use tonic::{Code, Status};

use crate::configuration::ChangeError;
use crate::engines::upgrade::ReceiveError;
use crate::text::shown_path;
use crate::workloads::WorkloadError;

/// An argument that an engine's own type refuses.
pub fn invalid(error: impl std::error::Error + 'static) -> Status {
    Status::invalid_argument(chain(&error))
}

pub fn of_cells(error: &CellError) -> Status {
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
        | Error::NotAttachable { .. }
        | Error::EarlierShim { .. }
        | Error::ExecFailed { .. } => Code::FailedPrecondition,
        Error::ProgramNotPermitted { .. } => Code::PermissionDenied,
        Error::TooManyProcesses { .. } | Error::TooManyAttachments { .. } => {
            Code::ResourceExhausted
        }
        Error::Unkillable { .. } => Code::DeadlineExceeded,
        Error::Interrupted { .. } => Code::Aborted,
        Error::Cancelled { .. } => Code::Cancelled,
        Error::NotStarted { .. }
        | Error::NotIsolated { .. }
        | Error::NoShim { .. }
        | Error::ShimUnresponsive { .. }
        | Error::ShimFailed { .. }
        | Error::RecordIo { .. } => Code::Internal,
    };
    Status::new(code, chain(error))
}

pub fn of_containers(error: &ContainerError) -> Status {
    use ContainerError as Error;
    let code = match error {
        Error::NotFound { .. } | Error::NoPrevious { .. } => Code::NotFound,
        Error::NoId
        | Error::InvalidId { .. }
        | Error::InvalidNamespace { .. }
        | Error::NotKubernetes { .. }
        | Error::Ambiguous { .. } => Code::InvalidArgument,
        Error::Unreachable { .. } | Error::Interrupted { .. } => Code::Unavailable,
        Error::Silent { .. } => Code::DeadlineExceeded,
        Error::Restarting { .. } => Code::Aborted,
        Error::NotSpoken { .. }
        | Error::NotRunning { .. }
        | Error::OfDocker { .. }
        | Error::Detached { .. }
        | Error::NoLog { .. } => Code::FailedPrecondition,
        Error::Refused { .. } | Error::Unstoppable { .. } | Error::NotStarted { .. } => {
            Code::Internal
        }
    };
    Status::new(code, chain(error))
}

pub fn of_logs(error: &LogError) -> Status {
    let code = match error {
        LogError::NotFound { .. } => Code::NotFound,
        LogError::InvalidName { .. } => Code::InvalidArgument,
        _ => Code::Internal,
    };
    Status::new(code, chain(error))
}

pub fn of_events(error: &EventError) -> Status {
    let code = match error {
        EventError::UnknownId { .. } => Code::NotFound,
        _ => Code::Internal,
    };
    Status::new(code, chain(error))
}

pub fn of_services(error: &ServiceError) -> Status {
    let code = match error {
        ServiceError::NotDefined { .. } => Code::NotFound,
        ServiceError::NotSupported { .. } | ServiceError::Held => Code::FailedPrecondition,
        ServiceError::NotStopped { .. } => Code::Internal,
    };
    Status::new(code, chain(error))
}

pub fn of_sequence(error: &StartError) -> Status {
    let code = match error {
        StartError::Busy { .. } => Code::FailedPrecondition,
        StartError::NotRecorded { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
            Code::ResourceExhausted
        }
        StartError::NotRecorded { .. } => Code::Internal,
        StartError::Stopping => Code::Unavailable,
    };
    Status::new(code, chain(error))
}

pub fn of_schedules(error: &ScheduleError) -> Status {
    use ScheduleError as Error;
    let code = match error {
        Error::Name(_) | Error::Timer(_) | Error::TooLarge { .. } => Code::InvalidArgument,
        Error::NotFound { .. } => Code::NotFound,
        Error::TooMany { .. } => Code::ResourceExhausted,
        Error::NoTimer { .. } | Error::AlreadyRunning { .. } | Error::Held => {
            Code::FailedPrecondition
        }
        Error::NotWritten { source, .. } => match source.kind() {
            io::ErrorKind::StorageFull => Code::ResourceExhausted,
            _ => Code::Internal,
        },
        Error::NotStopped { .. } => Code::Internal,
    };
    Status::new(code, chain(error))
}

pub fn of_workloads(error: &WorkloadError) -> Status {
    use WorkloadError as Error;
    let code = match error {
        Error::Cell(error) => return of_cells(error),
        Error::Service(error) => return of_services(error),
        Error::Container(error) => return of_containers(error),
        Error::Log(error) => return of_logs(error),
        Error::NoSuchWorkload { .. }
        | Error::NoSuchLog { .. }
        | Error::NoLogFile { .. }
        | Error::NoSuchProcess { .. } => Code::NotFound,
        Error::NoPreviousRun | Error::NoPreviousLog { .. } => Code::InvalidArgument,
        Error::UnreadableLogFile { .. } | Error::NoTimestamps { .. } => Code::FailedPrecondition,
        Error::Panicked { .. } => Code::Internal,
    };
    Status::new(code, chain(error))
}

pub fn of_receive(error: &ReceiveError) -> Status {
    let code = match error {
        ReceiveError::Slots(error) => return of_slots(error),
        ReceiveError::Key(_) => Code::FailedPrecondition,
        ReceiveError::Busy(_) => Code::ResourceExhausted,
        ReceiveError::Panicked => Code::Internal,
    };
    Status::new(code, chain(error))
}

pub fn of_slots(error: &SlotsError) -> Status {
    use SlotsError as Error;
    let code = match error {
        Error::Image(ImageError::NotFound { .. }) => Code::NotFound,
        Error::Image(ImageError::NotSigned { .. }) => Code::PermissionDenied,
        Error::Image(ImageError::Write { source, .. }) | Error::Write { source, .. } => {
            match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    Code::ResourceExhausted
                }
                _ => Code::Internal,
            }
        }
        Error::Image(ImageError::Read(_)) => Code::FailedPrecondition,
        Error::Image(_) => Code::InvalidArgument,
        Error::StateFormat { .. }
        | Error::SameBinary { .. }
        | Error::TrialPending { .. }
        | Error::NoOtherSlot(_)
        | Error::OwnStamp => Code::FailedPrecondition,
        Error::Record(_) | Error::OwnBinary(_) => Code::Internal,
    };
    Status::new(code, chain(error))
}

pub fn of_changes(error: &ChangeError) -> Status {
    use ChangeError as Error;
    let code = match error {
        Error::Empty
        | Error::TooLarge { .. }
        | Error::NotText { .. }
        | Error::Invalid { .. }
        | Error::Unusable { .. }
        | Error::TrialTimeout { .. }
        | Error::TimeoutWithoutTrial => Code::InvalidArgument,
        Error::Busy => Code::Aborted,
        Error::FileChanged { .. } | Error::NeedsRestart { .. } | Error::NotAFile { .. } => {
            Code::FailedPrecondition
        }
        Error::NotRebooted(_) => Code::FailedPrecondition,
        Error::Unreadable { source, .. }
        | Error::Unwritable { source, .. }
        | Error::NotKept { source, .. } => match source.kind() {
            io::ErrorKind::StorageFull => Code::ResourceExhausted,
            io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem => Code::FailedPrecondition,
            _ => Code::Internal,
        },
        Error::Panicked => Code::Internal,
    };
    Status::new(code, chain(error))
}

/// An error of the file system about a path that the caller named.
pub fn of_file(path: &Path, error: &io::Error) -> Status {
    let code = match error.kind() {
        io::ErrorKind::NotFound => Code::NotFound,
        io::ErrorKind::PermissionDenied => Code::PermissionDenied,
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => Code::InvalidArgument,
        _ => Code::Internal,
    };
    let path = shown_path(path);
    Status::new(code, format!("{path}: {error}"))
}
