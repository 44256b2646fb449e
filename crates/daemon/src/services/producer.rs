//! A stream made by blocking work on a thread of its own, with back-pressure both ways: the work
//! waits for a slow reader, and ends when the reader is gone.

use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt, future, stream};
use tokio::sync::{Semaphore, mpsc};
use tonic::Status;

use crate::text::shorten;

/// A file system that gives nothing for so long is taken to hang. Time in which the reader does
/// not read does not count.
const PATIENCE: Duration = Duration::from_secs(30);
/// How far the work may run ahead of the reader.
const AHEAD: usize = 4;

/// So many small items go from the work to the stream at once: a thread hop an item would cost
/// more than the item.
const BATCH: usize = 256;
/// Work that finds nothing to give says so often that it still goes on.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// So much of this work goes on at once. Each holds a thread, also while its reader does not read,
/// and the rest of the node needs threads too.
const MOST_AT_ONCE: usize = 128;
static PLACES: Semaphore = Semaphore::const_new(MOST_AT_ONCE);

/// Where the work puts what it makes.
#[derive(Debug, Clone)]
pub(super) struct Reader<T>(mpsc::Sender<Result<T, Status>>);

/// Nobody reads any more: the work should end.
#[derive(Debug)]
pub(super) struct Gone;

impl<T> Reader<T> {
    /// Waits until there is room.
    pub(super) fn give(&self, item: Result<T, Status>) -> Result<(), Gone> {
        self.0.blocking_send(item).map_err(|_| Gone)
    }
}

pub(super) fn produce<T: Send + 'static>(
    what: String,
    work: impl FnOnce(&Reader<T>) + Send + 'static,
) -> Result<impl Stream<Item = Result<T, Status>> + Send + 'static, Status> {
    let place = PLACES.try_acquire().map_err(|_| {
        Status::resource_exhausted(format!(
            "{MOST_AT_ONCE} trees or files are being read already; try again when one is done"
        ))
    })?;
    let (send, receive) = mpsc::channel(AHEAD);
    tokio::task::spawn_blocking(move || {
        work(&Reader(send));
        drop(place);
    });
    Ok(stream::unfold(Some((receive, what)), |state| async {
        let (mut receive, what) = state?;
        match tokio::time::timeout(PATIENCE, receive.recv()).await {
            Ok(item) => Some((item?, Some((receive, what)))),
            Err(_) => {
                let seconds = PATIENCE.as_secs();
                let status = Status::deadline_exceeded(format!(
                    "nothing could be read for {seconds} s; the file system of {what} may hang"
                ));
                Some((Err(status), None))
            }
        }
    }))
}

/// The same for many small items.
pub(super) fn produce_many<T: Send + 'static>(
    what: String,
    work: impl FnOnce(&mut Gathering<'_, T>) -> Result<(), Gone> + Send + 'static,
) -> Result<super::Answers<T>, Status> {
    let batches = produce(what, move |reader| {
        let mut gathering = Gathering {
            reader,
            items: Vec::new(),
            given: Instant::now(),
        };
        // Whether anybody still reads makes no difference any more.
        let _ = work(&mut gathering).and_then(|()| gathering.give_all());
    })?;
    Ok(Box::pin(batches.flat_map(|batch| match batch {
        Ok(items) => stream::iter(items.into_iter().map(Ok)).left_stream(),
        Err(status) => stream::once(future::ready(Err(status))).right_stream(),
    })))
}

/// Items on their way to the reader.
#[derive(Debug)]
pub(super) struct Gathering<'a, T> {
    reader: &'a Reader<Vec<T>>,
    items: Vec<T>,
    given: Instant,
}

impl<T> Gathering<'_, T> {
    pub(super) fn add(&mut self, item: T) -> Result<(), Gone> {
        self.items.push(item);
        if self.items.len() < BATCH {
            return Ok(());
        }
        self.give_all()
    }

    /// Something was looked at, though there may be nothing to give.
    pub(super) fn goes_on(&mut self) -> Result<(), Gone> {
        if self.reader.0.is_closed() {
            return Err(Gone);
        }
        if self.given.elapsed() < SIGN_OF_LIFE {
            return Ok(());
        }
        self.give_all()
    }

    pub(super) fn fail(&mut self, status: Status) -> Result<(), Gone> {
        self.give_all()?;
        self.reader.give(Err(status))
    }

    fn give_all(&mut self) -> Result<(), Gone> {
        self.given = Instant::now();
        let next = Vec::with_capacity(self.items.len());
        let items = std::mem::replace(&mut self.items, next);
        self.reader.give(Ok(items))
    }
}

/// What a file system's error means to the caller.
pub(super) fn file_status(path: &std::path::Path, error: &std::io::Error) -> Status {
    let message = format!("{}: {error}", shorten(&path.display().to_string()));
    match error.kind() {
        std::io::ErrorKind::NotFound => Status::not_found(message),
        std::io::ErrorKind::PermissionDenied => Status::permission_denied(message),
        std::io::ErrorKind::InvalidInput | std::io::ErrorKind::InvalidFilename => {
            Status::invalid_argument(message)
        }
        _ => Status::internal(message),
    }
}
