//! A stream produced by blocking work on a thread of its own, with back-pressure both ways: the
//! work waits for a slow reader, and ends when the reader is gone.

use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt, future, stream};
use tokio::sync::mpsc;
use tonic::Status;

use super::Answers;
use super::slots::{Bounds, Slots};
use crate::requester::Requester;

/// A file system that delivers nothing for this long is reported as hung. Time in which the reader
/// does not read does not count.
const HUNG_TIMEOUT: Duration = Duration::from_secs(30);
/// Items the work may run ahead of the reader.
const READ_AHEAD: usize = 4;

/// Small items go from the work to the stream in batches: a thread hop per item would cost more
/// than the item.
const BATCH: usize = 256;
/// Work that finds nothing to deliver sends an empty batch this often.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Each producer holds a thread, also while its reader does not read or its file system hangs, and
/// the rest of the node needs threads too.
static PRODUCERS: Slots = Slots::new(Bounds {
    shared: 128,
    reserved: 64,
    per_caller: 32,
});

/// The reading end of the stream, as the work sees it.
#[derive(Debug, Clone)]
pub struct Reader<T>(mpsc::Sender<Result<T, Status>>);

/// The reader is gone: the work should end.
#[derive(Debug)]
pub struct Gone;

impl<T> Reader<T> {
    /// Sends an item; waits while the reader is behind.
    pub fn give(&self, item: Result<T, Status>) -> Result<(), Gone> {
        self.0.blocking_send(item).map_err(|_| Gone)
    }
}

/// Runs `work` on a blocking thread and streams what it sends; `what` names it in errors.
pub fn produce<T: Send + 'static>(
    what: String,
    work: impl FnOnce(&Reader<T>) + Send + 'static,
) -> Result<impl Stream<Item = Result<T, Status>> + Send + 'static, Status> {
    let slot = PRODUCERS.take(Requester::current()).map_err(|error| {
        Status::resource_exhausted(format!(
            "cannot read another tree or file: {error}; retry when one is done"
        ))
    })?;
    let (send, receive) = mpsc::channel(READ_AHEAD);
    tokio::task::spawn_blocking(move || {
        // The caller may be gone before a thread was free.
        if !send.is_closed() {
            work(&Reader(send));
        }
        drop(slot);
    });
    Ok(stream::unfold(Some((receive, what)), |state| async {
        let (mut receive, what) = state?;
        match tokio::time::timeout(HUNG_TIMEOUT, receive.recv()).await {
            Ok(item) => Some((item?, Some((receive, what)))),
            Err(_) => {
                let seconds = HUNG_TIMEOUT.as_secs();
                let status = Status::deadline_exceeded(format!(
                    "nothing could be read for {seconds} s; the file system of {what} may hang"
                ));
                Some((Err(status), None))
            }
        }
    }))
}

/// Like [`produce`], for many small items.
pub fn produce_many<T: Send + 'static>(
    what: String,
    work: impl FnOnce(&mut Gathering<'_, T>) -> Result<(), Gone> + Send + 'static,
) -> Result<Answers<T>, Status> {
    let batches = produce(what, move |reader| {
        let mut gathering = Gathering {
            reader,
            items: Vec::new(),
            given: Instant::now(),
        };
        // The work has ended, whether or not the reader is still there.
        let _ = work(&mut gathering).and_then(|()| gathering.give_all());
    })?;
    Ok(Box::pin(batches.flat_map(|batch| match batch {
        Ok(items) => stream::iter(items.into_iter().map(Ok)).left_stream(),
        Err(status) => stream::once(future::ready(Err(status))).right_stream(),
    })))
}

/// Items gathered into batches for the reader.
#[derive(Debug)]
pub struct Gathering<'a, T> {
    reader: &'a Reader<Vec<T>>,
    items: Vec<T>,
    given: Instant,
}

impl<T> Gathering<'_, T> {
    pub fn add(&mut self, item: T) -> Result<(), Gone> {
        self.items.push(item);
        if self.items.len() < BATCH {
            return Ok(());
        }
        self.give_all()
    }

    /// Says that the work goes on, though there may be nothing to deliver.
    pub fn keep_alive(&mut self) -> Result<(), Gone> {
        if self.reader.0.is_closed() {
            return Err(Gone);
        }
        if self.given.elapsed() < KEEPALIVE_INTERVAL {
            return Ok(());
        }
        self.give_all()
    }

    pub fn fail(&mut self, status: Status) -> Result<(), Gone> {
        self.give_all()?;
        self.reader.give(Err(status))
    }

    /// Ends the batch.
    pub fn give_all(&mut self) -> Result<(), Gone> {
        self.given = Instant::now();
        let next = Vec::with_capacity(self.items.len());
        let items = std::mem::replace(&mut self.items, next);
        self.reader.give(Ok(items))
    }
}
