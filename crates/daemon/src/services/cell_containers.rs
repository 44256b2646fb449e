//! Cells and their executables among the containers, in the namespace of the node's own workloads.

use mainstay_api::os::{ContainerInfo, Stat};
use mainstay_cells::{CellError, CellName, Cells, ExecutableName, StopOptions};
use tonic::Status;

use super::cell_logs::{NAMESPACE, parse};
use super::{cells, shown};

/// A cell is listed like a pod, and each executable like a container in it.
pub(super) fn list(cells: &Cells) -> Vec<ContainerInfo> {
    let mut all = Vec::new();
    for status in cells.list() {
        let name = status.cell.name.to_string();
        let info = |id: String, pid: i32, state: &str, called: String| ContainerInfo {
            namespace: NAMESPACE.to_owned(),
            id,
            pid: u32::try_from(pid).unwrap_or(0),
            status: state.to_owned(),
            pod_id: name.clone(),
            name: called,
            ..ContainerInfo::default()
        };
        let shim = status.shim_pid.unwrap_or(0);
        all.push(info(name.clone(), shim, "SANDBOX_READY", name.clone()));
        for record in &status.executables {
            let (pid, state) = if record.run.is_running() {
                (record.run.pid, "RUNNING")
            } else {
                (0, "STOPPED")
            };
            // What it runs is the nearest that an executable has to an image.
            let program = record.spec.words.first().cloned().unwrap_or_default();
            let id = format!("{name}/{}", record.name);
            all.push(ContainerInfo {
                image: program,
                ..info(id, pid, state, record.name.to_string())
            });
        }
    }
    all
}

/// What every executable that runs uses.
pub(super) async fn stats(cells: &Cells) -> Result<Vec<Stat>, Status> {
    let cells = cells.clone();
    let read = tokio::task::spawn_blocking(move || {
        let mut all = Vec::new();
        for status in cells.list() {
            let running = status
                .executables
                .iter()
                .filter(|record| record.run.is_running());
            for record in running {
                // One that ends this moment is not there any more.
                if let Ok(usage) = cells.usage(&status.cell.name, &record.name) {
                    all.push(Stat {
                        namespace: NAMESPACE.to_owned(),
                        id: format!("{}/{}", status.cell.name, record.name),
                        memory_usage: usage.memory_bytes,
                        cpu_usage: usage.cpu_nanos,
                        pod_id: status.cell.name.to_string(),
                        name: record.name.to_string(),
                    });
                }
            }
        }
        all
    });
    read.await
        .map_err(|_| Status::internal("reading what cells use failed"))
}

/// Stops an executable and starts it as it was started before.
pub(super) async fn restart(engine: &Cells, id: &str) -> Result<(), Status> {
    let unknown = || Status::not_found(format!("container {:?} was not found", shown(id)));
    let (cell, executable) = parse(id).ok_or_else(unknown)?;
    let spec = find(engine, &cell, &executable).ok_or_else(unknown)?;
    let engine = engine.clone();
    // Whoever asked may go away; it is not left stopped because of that.
    let work = tokio::spawn(async move {
        let stopped = engine.stop(
            cell.clone(),
            Some(executable.clone()),
            StopOptions::default(),
        );
        stopped.await?;
        engine.start(cell, executable, spec).await
    });
    let done = work
        .await
        .map_err(|_| Status::aborted("the restart was broken off"))?;
    done.map(drop)
        .map_err(|error: CellError| cells::status(&error))
}

fn find(
    cells: &Cells,
    cell: &CellName,
    executable: &ExecutableName,
) -> Option<mainstay_cells::ExecutableSpec> {
    let status = cells
        .list()
        .into_iter()
        .find(|status| status.cell.name == *cell)?;
    let record = status
        .executables
        .into_iter()
        .find(|record| record.name == *executable)?;
    Some(record.spec)
}
