//! Health checks: one attempt at a time for each service, bounded in number over all.

use std::sync::Arc;
use std::time::Duration;

use mainstay_cells::{CellError, ExitStatus, FoundRun, StopOptions};
use mainstay_error_chain::chain;
use rustix::process::Signal;
use tokio::time::timeout;

use super::Inner;
use super::effects::{describe, resolve};
use crate::program::{Placement, probe_spec};
use crate::{Definition, HealthCheck, Probe, ServiceName, probe};

impl Inner {
    /// Makes one check, and reports its result.
    pub(super) async fn check_health(
        self: Arc<Self>,
        service: ServiceName,
        run: u64,
        definition: Arc<Definition>,
    ) {
        let Some(check) = &definition.health else {
            return;
        };
        let _permit = self.probes.acquire().await;
        let result = match &check.probe {
            Probe::Exec(command) => {
                self.check_by_command(&service, command, check, &definition)
                    .await
            }
            Probe::Tcp(address) => bounded(check.timeout, probe::tcp(*address)).await,
            Probe::Http { address, path } => {
                bounded(check.timeout, probe::http(*address, path)).await
            }
            Probe::Grpc { address, service } => {
                bounded(check.timeout, probe::grpc(*address, service)).await
            }
        };
        self.act(|core, _| core.health_checked(&service, run, result));
    }

    async fn check_by_command(
        self: &Arc<Self>,
        service: &ServiceName,
        command: &[String],
        check: &HealthCheck,
        definition: &Arc<Definition>,
    ) -> Result<(), String> {
        let placement = Placement::of(service, definition).ok_or("its name is too long")?;
        let (cell, executable) = (placement.cell, placement.probe);
        let spec = probe_spec(resolve(definition).await?, command);
        let stop = || {
            let options = StopOptions {
                signal: Some(Signal::KILL),
                grace: None,
            };
            self.cells
                .stop(cell.clone(), Some(executable.clone()), options)
        };
        let start = || {
            self.cells
                .start(cell.clone(), executable.clone(), spec.clone())
        };
        let started = match start().await {
            // Left by a check of an earlier supervisor.
            Err(CellError::AlreadyRunning { .. }) => {
                let _ = stop().await;
                start().await
            }
            started => started,
        };
        let started = started.map_err(|error| format!("cannot check: {}", chain(&error)))?;
        let found = FoundRun {
            log: executable.key(&cell),
            cell: cell.clone(),
            executable: executable.clone(),
            run: started,
        };
        match timeout(check.timeout, self.cells.until_ended(&found)).await {
            Ok(run) => {
                self.end_leftovers(&cell, &executable).await;
                match run.end.map(|end| end.status) {
                    Some(ExitStatus::Exited(0)) => Ok(()),
                    Some(status) => Err(format!("{} {}", program(command), describe(status))),
                    None => Err(format!("{} is still running", program(command))),
                }
            }
            Err(_) => {
                if let Err(error) = stop().await {
                    let error = chain(&error);
                    tracing::warn!(%service, error, "cannot end a health check");
                }
                Err(timed_out(check.timeout))
            }
        }
    }
}

fn program(command: &[String]) -> &str {
    command.first().map_or("the check", String::as_str)
}

async fn bounded(
    limit: Duration,
    check: impl Future<Output = Result<(), String>>,
) -> Result<(), String> {
    let checked = timeout(limit, check).await;
    checked.unwrap_or_else(|_| Err(timed_out(limit)))
}

fn timed_out(limit: Duration) -> String {
    format!("timed out after {limit:?}")
}
