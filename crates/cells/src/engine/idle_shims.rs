//! The end of shims in whose cells nothing runs.

use std::sync::Arc;
use std::time::Duration;

use mainstay_error_chain::chain;

use super::cell::Cell;
use super::cgroup_names::shim_cgroup;
use super::free::is_idle;
use super::shim_exit::wait_for_exit;
use super::{CellError, Cells, Inner, blocking};

/// A killed shim has nothing to wait for.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

impl Cells {
    /// Ends the shims of all cells in which nothing runs. The cells stay, and the next executable of
    /// each forks another shim.
    pub async fn end_idle_shims(&self) {
        let cells: Vec<_> = self.0.cells().values().cloned().collect();
        for cell in cells {
            // Nothing starts in the cell meanwhile.
            let order = Arc::clone(&cell.order).lock_owned().await;
            let inner = Arc::clone(&self.0);
            let name = cell.name().clone();
            let ended = blocking(&name, move || {
                let _order = order;
                end_shim(&inner, &cell)
            });
            if let Err(error) = ended.await {
                tracing::warn!(cell = %name, error = chain(&error), "cannot end the shim of a cell");
            }
        }
    }
}

fn end_shim(inner: &Inner, cell: &Arc<Cell>) -> Result<(), CellError> {
    if !cell.is_ready() || !is_idle(inner, cell)? {
        return Ok(());
    }
    // Taken first: this exit is no loss to report.
    let Some(shim) = cell.state().shim.take() else {
        return Ok(());
    };
    let cgroups = inner.cgroups()?;
    cgroups
        .kill(&shim_cgroup(cell.name()))
        .map_err(CellError::Cgroup)?;
    wait_for_exit(&shim.pidfd, EXIT_TIMEOUT);
    Ok(())
}
