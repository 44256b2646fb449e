//! `GetPosixSignalsStream`: the signals that processes are sent.

use futures_util::{StreamExt, stream};
use mainstay_api::aurae::observe::v0::{
    GetPosixSignalsStreamRequest, GetPosixSignalsStreamResponse, Signal, Workload, WorkloadType,
};
use mainstay_cells::{CellName, Cells};
use mainstay_signals::{Group, SignalsError, StreamError};
use tonic::{Code, Status};

use crate::engines::Engines;
use crate::requester::Requester;
use crate::rpc::{Answers, Bounds, Slots, status};
use crate::services::runtime::cell_name;
use mainstay_error_chain::chain;

/// Each stream holds a thread and a tracing instance with its buffers, and every signal of the
/// machine is traced for it.
static STREAMS: Slots = Slots::new(Bounds {
    shared: 4,
    reserved: 4,
    per_caller: 2,
});

/// A cell as a group of processes.
#[derive(Debug)]
struct OfCell {
    cells: Cells,
    cell: CellName,
}

impl Group for OfCell {
    fn processes(&self) -> Vec<i32> {
        // A cell that was freed since has none.
        self.cells.members(&self.cell).unwrap_or_default()
    }

    fn contains(&self, pid: i32) -> bool {
        self.cells.is_member(&self.cell, pid)
    }

    fn parent(&self) -> Option<i32> {
        self.cells.shim_pid(&self.cell)
    }
}

pub(super) async fn stream(
    engines: &Engines,
    request: GetPosixSignalsStreamRequest,
) -> Result<Answers<GetPosixSignalsStreamResponse>, Status> {
    let cell = request.workload.as_ref().map(of_cell).transpose()?;
    let slot = STREAMS.take(Requester::current()).map_err(|error| {
        Status::resource_exhausted(format!(
            "cannot stream signals once more: {error}; end one first"
        ))
    })?;
    let (signals, cells) = (engines.signals.clone(), engines.cells.clone());
    let traced = tokio::task::spawn_blocking(move || {
        let group = match cell {
            None => None,
            Some(cell) => {
                // Says that there is no such cell before anything is traced.
                let members = cells.members(&cell);
                members.map_err(|error| status::of_cells(&error))?;
                Some(Box::new(OfCell { cells, cell }) as Box<dyn Group>)
            }
        };
        // The slot stays with the work, also when the caller is gone before there is a stream.
        let traced = signals.trace(group, Box::new(slot));
        traced.map_err(|error| cannot_trace(&error))
    });
    let traced = traced
        .await
        .map_err(|_| Status::internal("tracing signals failed; the node's log says why"))??;
    let batches = stream::unfold(traced, |mut traced| async {
        let batch = traced.next().await?;
        Some((batch, traced))
    });
    Ok(Box::pin(batches.flat_map(|batch| {
        let answers: Vec<_> = match batch {
            Ok(signals) => signals.into_iter().map(answer).map(Ok).collect(),
            Err(error) => vec![Err(ended(&error))],
        };
        stream::iter(answers)
    })))
}

fn of_cell(workload: &Workload) -> Result<CellName, Status> {
    match WorkloadType::try_from(workload.workload_type) {
        Ok(WorkloadType::Cell) => cell_name(&workload.id),
        Ok(WorkloadType::PodSandbox | WorkloadType::Vm) => Err(Status::unimplemented(
            "signals of pods and virtual machines are not served; ask for a cell, or for all \
             signals of the node by leaving out the workload",
        )),
        Ok(WorkloadType::Unspecified) | Err(_) => Err(Status::invalid_argument(format!(
            "{} is not a type of workload; 1 is a cell",
            workload.workload_type
        ))),
    }
}

fn answer(signal: mainstay_signals::Signal) -> GetPosixSignalsStreamResponse {
    GetPosixSignalsStreamResponse {
        signal: Some(Signal {
            signal: signal.number,
            process_id: signal.pid,
        }),
    }
}

fn cannot_trace(error: &SignalsError) -> Status {
    let code = match error {
        SignalsError::Unsupported { .. } | SignalsError::Format(_) => Code::Unimplemented,
        SignalsError::Instance { .. } => Code::Internal,
    };
    Status::new(code, chain(error))
}

fn ended(error: &StreamError) -> Status {
    let code = match error {
        StreamError::Lost => Code::DataLoss,
        StreamError::Io(_) => Code::Internal,
    };
    Status::new(code, chain(error))
}
