//! Restart: stops an executable and starts it again. Once the stop has begun, the start follows.

use std::sync::Arc;

use super::caller::Caller;
use super::error::CellError;
use super::stop::StopOptions;
use super::{Inner, start, stop};
use crate::name::{CellName, ExecutableName};
use crate::record::Run;
use crate::spec::ExecutableSpec;

pub(super) async fn restart(
    inner: Arc<Inner>,
    caller: Caller,
    cell: CellName,
    executable: ExecutableName,
    spec: ExecutableSpec,
) -> Result<Run, CellError> {
    let one = Some(executable.clone());
    let options = StopOptions::default();
    stop::stop(Arc::clone(&inner), caller, cell.clone(), one, options).await?;
    start::start(inner, Caller::committed(), cell, executable, spec).await
}
