//! Making a cell: its record and its control group, and nothing else.

use std::sync::Arc;

use mainstay_journal::Timestamp;

use super::cell::{Cell, Phase};
use super::error::CellError;
use super::places::{make_directory, remove_directory};
use super::{Allocated, Inner, blocking};
use crate::cgroup::CgroupError;
use crate::name::CellName;
use crate::record::{self, CellRecord};
use crate::spec::CellSpec;

pub(super) async fn allocate(
    inner: Arc<Inner>,
    name: CellName,
    spec: CellSpec,
) -> Result<Allocated, CellError> {
    spec.check()?;
    inner.cgroups()?;
    let record = CellRecord {
        name: name.clone(),
        spec,
        allocated: Timestamp::now().as_nanos(),
    };
    let (cell, order) = loop {
        match reserve(&inner, &record)? {
            Reserved::Ours(cell, order) => break (cell, order),
            Reserved::Wait(cell) => cell.until_settled().await,
        }
    };
    let worker = Arc::clone(&inner);
    let made = blocking(&name, move || {
        let made = make(&worker, &cell);
        match &made {
            Ok(()) => {
                let mut state = cell.state();
                if state.phase == Phase::Making {
                    state.phase = Phase::There;
                }
                drop(state);
                cell.changed.notify_waiters();
            }
            Err(_) => {
                worker.forget(&cell);
                worker.remove_roots();
            }
        }
        drop(order);
        made
    });
    made.await?;
    Ok(Allocated {
        cgroup_v2: inner.is_v2(),
    })
}

enum Reserved {
    Ours(Arc<Cell>, tokio::sync::OwnedMutexGuard<()>),
    /// One of that name is coming or going.
    Wait(Arc<Cell>),
}

/// Takes the name, if it is free.
fn reserve(inner: &Inner, record: &CellRecord) -> Result<Reserved, CellError> {
    let mut cells = inner.cells();
    if let Some(parent) = record.name.parent()
        && !cells.get(&parent).is_some_and(|parent| parent.is_there())
    {
        return Err(CellError::NoSuchCell { cell: parent });
    }
    if let Some(cell) = cells.get(&record.name) {
        let phase = cell.state().phase;
        return match phase {
            // Said to be there before it is, it could not be found by whoever was told so.
            Phase::Making | Phase::Freeing | Phase::Gone => Ok(Reserved::Wait(Arc::clone(cell))),
            Phase::There => Err(CellError::CellExists {
                cell: record.name.clone(),
            }),
        };
    }
    let cell = Cell::new(record.clone(), inner.next_serial(), Phase::Making);
    let cell = Arc::new(cell);
    let order = Arc::clone(&cell.order).try_lock_owned();
    let order = order.map_err(|_| CellError::Interrupted {
        cell: record.name.clone(),
    })?;
    cells.insert(record.name.clone(), Arc::clone(&cell));
    Ok(Reserved::Ours(cell, order))
}

/// The record comes first: should the daemon die in between, a record without a group is mended
/// at its next start, while a group without a record would be nobody's.
fn make(inner: &Inner, cell: &Cell) -> Result<(), CellError> {
    let name = cell.name();
    let failed = |source| CellError::Records {
        cell: name.clone(),
        source,
    };
    let directory = inner.places.of_cell(name);
    if directory.exists() {
        return Err(CellError::Unreadable {
            cell: name.clone(),
            path: directory,
        });
    }
    let made = make_directory(&directory)
        .and_then(|()| record::write(&inner.places.record(name), &cell.record))
        .map_err(failed)
        .and_then(|()| {
            let created = inner
                .cgroups()?
                .create(name.as_str(), &cell.record.spec.limits);
            created.map_err(|error| match error {
                CgroupError::Exists { .. } => CellError::NotOurs {
                    cell: name.clone(),
                    source: error,
                },
                error => CellError::Cgroup(error),
            })
        });
    if made.is_err() {
        let _ = remove_directory(&directory);
    }
    made
}
