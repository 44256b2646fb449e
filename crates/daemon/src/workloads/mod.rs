//! One view of everything that runs on the node, whichever engine runs it.
//!
//! Services list, measure, restart and read the output of workloads only through [`Workloads`].
//! It knows no gRPC. A source is one file here and one line in the list below.

mod cells;
mod error;
mod foreign;
mod output;
mod services;
mod system;

use mainstay_containers::Driver;
use mainstay_journal::{LogQuery, LogStream};

use crate::engines::Engines;
pub use cells::ExecutableId;
pub use error::WorkloadError;
pub use output::ProcessOutput;

/// The namespace of the node's own workloads.
const OWN_NAMESPACE: &str = "mainstay";
/// The namespace of the node's own services.
pub const SYSTEM_NAMESPACE: &str = "system";

/// Something that runs, or may run again. Empty text where a source has no such thing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Workload {
    pub namespace: String,
    pub id: String,
    /// The pod or cell that it belongs to.
    pub pod: String,
    pub name: String,
    pub state: &'static str,
    /// 0 when nothing runs.
    pub pid: u32,
    pub image: String,
    pub network_namespace: String,
    pub internal_id: String,
    pub uid: String,
}

/// Resources used by a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadUsage {
    pub namespace: String,
    pub id: String,
    pub pod: String,
    pub name: String,
    pub memory_bytes: u64,
    pub cpu_nanos: u64,
}

/// The workloads a caller asks about.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// Empty for every namespace.
    pub namespace: &'a str,
    pub driver: Driver,
}

impl Scope<'_> {
    /// Returns whether a workload of this scope is an executable of a cell.
    pub fn is_cells(self) -> bool {
        self.driver == Driver::Containerd && self.namespace == OWN_NAMESPACE
    }
}

/// A log a caller asks for.
#[derive(Debug, Clone, Copy)]
pub struct LogSelector<'a> {
    pub scope: Scope<'a>,
    pub id: &'a str,
    /// Whether the log of the previous instance is meant.
    pub previous: bool,
}

/// An engine's workloads.
trait Source {
    async fn list(&self, scope: Scope<'_>) -> Result<Vec<Workload>, WorkloadError>;
    async fn usage(&self, scope: Scope<'_>) -> Result<Vec<WorkloadUsage>, WorkloadError>;
    /// Restarts a workload; `None` if it belongs to another source.
    async fn restart(&self, scope: Scope<'_>, id: &str) -> Option<Result<(), WorkloadError>>;
    /// Opens a log; `None` if it belongs to another source.
    async fn log(
        &self,
        log: LogSelector<'_>,
        query: LogQuery,
    ) -> Option<Result<LogStream, WorkloadError>>;
    /// Lists the ids of logs that can be read without naming a namespace.
    async fn log_ids(&self) -> Result<Vec<String>, WorkloadError>;
}

macro_rules! workloads {
    ($($source:ident: $type:ident),+ $(,)?) => {
        /// Everything that runs on the node.
        #[derive(Debug)]
        pub struct Workloads {
            $($source: $source::$type,)+
        }

        impl Workloads {
            pub fn new(engines: &Engines) -> Self {
                Self { $($source: $source::$type::new(engines)),+ }
            }

            pub async fn list(&self, scope: Scope<'_>) -> Result<Vec<Workload>, WorkloadError> {
                let mut found = Found::default();
                $(found.add(self.$source.list(scope).await)?;)+
                found.into_result()
            }

            pub async fn usage(
                &self,
                scope: Scope<'_>,
            ) -> Result<Vec<WorkloadUsage>, WorkloadError> {
                let mut found = Found::default();
                $(found.add(self.$source.usage(scope).await)?;)+
                found.into_result()
            }

            pub async fn restart(&self, scope: Scope<'_>, id: &str) -> Result<(), WorkloadError> {
                $(if let Some(done) = self.$source.restart(scope, id).await {
                    return done;
                })+
                Err(WorkloadError::NoSuchWorkload { id: id.to_owned() })
            }

            pub async fn log(
                &self,
                log: LogSelector<'_>,
                query: LogQuery,
            ) -> Result<LogStream, WorkloadError> {
                $(if let Some(opened) = self.$source.log(log, query).await {
                    return opened;
                })+
                Err(WorkloadError::NoSuchLog { id: log.id.to_owned() })
            }

            pub async fn log_ids(&self) -> Result<Vec<String>, WorkloadError> {
                let mut ids = Vec::new();
                $(ids.extend(self.$source.log_ids().await?);)+
                Ok(ids)
            }
        }
    };
}

// In the order in which workloads are listed and logs are looked for.
workloads! {
    cells: CellWorkloads,
    services: ServiceWorkloads,
    system: SystemLogs,
    foreign: ForeignContainers,
}

impl Workloads {
    /// Opens the output of the latest process that had this PID, from its start, or from a later
    /// time, to its exit.
    pub async fn process_output(
        &self,
        pid: i64,
        channel: mainstay_journal::Stream,
        since: Option<mainstay_journal::Timestamp>,
    ) -> Result<ProcessOutput, WorkloadError> {
        match self.services.process_output(pid, channel, since).await {
            Some(of_service) => of_service,
            None => self.cells.process_output(pid, channel, since).await,
        }
    }
}

/// Results of all sources. A runtime that is not installed is an error only if nothing else has
/// been found.
#[derive(Debug)]
struct Found<T> {
    items: Vec<T>,
    absent: Option<WorkloadError>,
}

impl<T> Default for Found<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            absent: None,
        }
    }
}

impl<T> Found<T> {
    fn add(&mut self, more: Result<Vec<T>, WorkloadError>) -> Result<(), WorkloadError> {
        match more {
            Ok(more) => self.items.extend(more),
            Err(error) if error.is_absent_runtime() => self.absent = Some(error),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn into_result(self) -> Result<Vec<T>, WorkloadError> {
        match self.absent {
            Some(error) if self.items.is_empty() => Err(error),
            _ => Ok(self.items),
        }
    }
}
