//! Allocate: creates the record and the cgroup of a cell, and nothing else.

use std::io;
use std::sync::Arc;

use mainstay_journal::Timestamp;

use super::caller::Caller;
use super::cell::{Cell, Phase};
use super::error::CellError;
use super::paths::{create_directory, remove_directory};
use super::{Allocated, Inner, blocking};
use crate::cgroup::CgroupError;
use crate::name::CellName;
use crate::record::{self, CellRecord};
use crate::spec::CellSpec;

pub(super) async fn allocate(
    inner: Arc<Inner>,
    caller: Caller,
    name: CellName,
    spec: CellSpec,
) -> Result<Allocated, CellError> {
    spec.check()?;
    let spec = CellSpec {
        user_namespace: spec.user_namespace || inner.user_namespace,
        ..spec
    };
    inner.cgroups()?;
    let record = CellRecord {
        name: name.clone(),
        spec,
        allocated: Timestamp::now().as_nanos(),
    };
    let (cell, order) = loop {
        match reserve(&inner, &record)? {
            Reservation::Ours(cell, order) => break (cell, order),
            Reservation::Wait(cell) => caller.wait(&name, cell.until_settled()).await?,
        }
    };
    let worker = Arc::clone(&inner);
    let created = blocking(&name, move || {
        let created = caller
            .check(cell.name())
            .and_then(|()| create(&worker, &cell));
        match &created {
            Ok(()) => {
                let mut state = cell.state();
                if state.phase == Phase::Allocating {
                    state.phase = Phase::Ready;
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
        created
    });
    created.await?;
    Ok(Allocated {
        cgroup_v2: inner.is_v2(),
    })
}

enum Reservation {
    Ours(Arc<Cell>, tokio::sync::OwnedMutexGuard<()>),
    /// A cell of that name is being allocated or freed.
    Wait(Arc<Cell>),
}

/// Reserves the name, if it is unused.
fn reserve(inner: &Inner, record: &CellRecord) -> Result<Reservation, CellError> {
    let mut cells = inner.cells();
    if let Some(parent) = record.name.parent() {
        match cells.get(&parent).filter(|parent| parent.is_ready()) {
            Some(parent) => parent.check_readable()?,
            None => return Err(CellError::NoSuchCell { cell: parent }),
        }
    }
    inner.name_unnamed(&mut cells, &record.name);
    if let Some(cell) = cells.get(&record.name) {
        let phase = cell.state().phase;
        return match phase {
            // Not `CellExists` while it is allocated: a call right after could not find it.
            Phase::Allocating | Phase::Freeing | Phase::Gone => {
                Ok(Reservation::Wait(Arc::clone(cell)))
            }
            Phase::Ready => {
                cell.check_readable()?;
                Err(CellError::CellExists {
                    cell: record.name.clone(),
                })
            }
        };
    }
    let cell = Cell::new(record.clone(), inner.next_serial(), Phase::Allocating);
    let cell = Arc::new(cell);
    let order = Arc::clone(&cell.order).try_lock_owned();
    let order = order.map_err(|_| CellError::Interrupted {
        cell: record.name.clone(),
    })?;
    cells.insert(record.name.clone(), Arc::clone(&cell));
    Ok(Reservation::Ours(cell, order))
}

/// Creates the record, then the cgroup: the next daemon creates a missing cgroup for a record, but
/// a cgroup without a record would have no owner.
fn create(inner: &Inner, cell: &Cell) -> Result<(), CellError> {
    let name = cell.name();
    let failed = |source| CellError::RecordIo {
        cell: name.clone(),
        source,
    };
    let directory = inner.paths.cell_directory(name);
    if directory.exists() {
        // Created by another program since the start: every cell of ours is known.
        return Err(failed(io::ErrorKind::AlreadyExists.into()));
    }
    let created = create_directory(&directory)
        .and_then(|()| {
            let path = inner.paths.cell_record(name);
            match inner.unconfined {
                // Defined elsewhere, and allocated anew from there.
                true => record::write_runtime_cell(&path, &cell.record),
                false => record::write_cell(&path, &cell.record),
            }
        })
        .map_err(failed)
        .and_then(|()| {
            let _roots = inner.keep_cgroup_roots();
            let cgroup =
                inner.create_cell_cgroup(inner.cgroups()?, name.as_str(), &cell.record.spec);
            cgroup.map_err(|error| match error {
                CgroupError::Exists { .. } => CellError::ForeignCgroup {
                    cell: name.clone(),
                    source: error,
                },
                error => CellError::Cgroup(error),
            })
        });
    if created.is_err() {
        let _ = remove_directory(&directory);
    }
    created
}
