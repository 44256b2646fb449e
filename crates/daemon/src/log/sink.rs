//! Lines from any thread to one log file; callers never wait for the disk.
//!
//! A line is copied into memory; one thread writes the buffered lines with a single write. Under
//! load that is one system call for hundreds of lines; on a quiet node the thread sleeps. If the
//! disk is too slow, memory stays bounded: lines are dropped, counted, and the count is written
//! with the next batch.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mainstay_error_chain::chain;
use mainstay_journal::Timestamp;
use mainstay_journal::{LogLimits, LogWriter, Stream};

/// Lines that would exceed this buffer are dropped.
const MAX_BUFFERED_BYTES: usize = 1 << 20;
/// A batch of this size is written without waiting for more.
const BATCH_BYTES: usize = 64 << 10;

/// A handle for writing lines; clones write to the same log.
#[derive(Clone)]
pub struct Lines {
    shared: Arc<Shared>,
}

/// The owner of the log: dropping it writes the buffered lines and ends the thread.
pub struct LogSink {
    lines: Lines,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// Signalled when a batch has been written or dropped.
    written: Condvar,
}

#[derive(Default)]
struct Waiting {
    text: Vec<u8>,
    ends: Vec<(Timestamp, usize)>,
    dropped: u64,
    limits: Option<LogLimits>,
    closed: bool,
    /// A flush waits: the batch is written at once.
    urgent: bool,
    /// A batch has been taken and is being written.
    writing: bool,
}

impl Shared {
    /// A panic while the lock was held leaves the buffer as it was, which is still usable.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    /// Adds one line, without its newline.
    pub fn push(&self, time: Timestamp, line: &[u8]) {
        let mut waiting = self.shared.lock();
        if waiting.text.len() + line.len() > MAX_BUFFERED_BYTES {
            waiting.dropped += 1;
            return;
        }
        waiting.text.extend_from_slice(line);
        let end = waiting.text.len();
        waiting.ends.push((time, end));
        // The thread sleeps only while the buffer is empty or until a batch is full.
        if waiting.ends.len() == 1 || end >= BATCH_BYTES {
            self.shared.changed.notify_one();
        }
    }
}

impl LogSink {
    /// Starts the writer thread; lines are buffered for at most `window`.
    pub fn start(writer: LogWriter, window: Duration) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let lines = Lines {
            shared: Arc::clone(&shared),
        };
        let thread = std::thread::Builder::new()
            .name("log-writer".to_owned())
            .stack_size(128 << 10)
            .spawn(move || write_lines(&shared, writer, window))?;
        Ok(Self {
            lines,
            thread: Mutex::new(Some(thread)),
        })
    }

    pub fn lines(&self) -> Lines {
        self.lines.clone()
    }

    /// Waits until the kernel has every line pushed so far, for at most a second.
    pub fn flush(&self) {
        let shared = &self.lines.shared;
        let mut waiting = shared.lock();
        waiting.urgent = true;
        shared.changed.notify_one();
        let _ = shared
            .written
            .wait_timeout_while(waiting, Duration::from_secs(1), |waiting| {
                waiting.writing || !waiting.ends.is_empty()
            });
    }

    pub fn set_limits(&self, limits: LogLimits) {
        self.lines.shared.lock().limits = Some(limits);
    }
}

impl LogSink {
    /// Writes the buffered lines and ends the thread. Lines pushed afterwards are lost.
    pub fn close(&self) {
        self.lines.shared.lock().closed = true;
        self.lines.shared.changed.notify_one();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // The thread never panics; if it did, there is no log left to say so.
            let _ = thread.join();
        }
    }
}

impl Drop for LogSink {
    fn drop(&mut self) {
        self.close();
    }
}

fn write_lines(shared: &Shared, mut writer: LogWriter, window: Duration) {
    let mut failing = false;
    let mut lost = 0;
    loop {
        let batch = next_batch(shared, window);
        if let Some(limits) = batch.limits {
            writer.set_limits(limits);
        }
        lost += batch.dropped;
        if let Err(error) = write_batch(&mut writer, &batch, &mut lost) {
            lost += batch.ends.len() as u64;
            if !failing {
                // The log itself cannot record it.
                eprintln!(
                    "mainstay: cannot write a log, lines are lost: {}",
                    chain(&error)
                );
            }
            failing = true;
        } else {
            failing = false;
        }
        shared.lock().writing = false;
        shared.written.notify_all();
        if batch.closed {
            return;
        }
    }
}

/// Waits for the first line, then up to `window` for more.
fn next_batch(shared: &Shared, window: Duration) -> Waiting {
    let waiting = shared.lock();
    let waiting = shared
        .changed
        .wait_while(waiting, |waiting| {
            waiting.ends.is_empty() && !waiting.closed
        })
        .unwrap_or_else(PoisonError::into_inner);
    let mut waiting = shared
        .changed
        .wait_timeout_while(waiting, window, |waiting| {
            waiting.text.len() < BATCH_BYTES && !waiting.closed && !waiting.urgent
        })
        .map_or_else(|poisoned| poisoned.into_inner().0, |(waiting, _)| waiting);
    let batch = std::mem::take(&mut *waiting);
    waiting.closed = batch.closed;
    waiting.writing = true;
    batch
}

fn write_batch(
    writer: &mut LogWriter,
    batch: &Waiting,
    lost: &mut u64,
) -> Result<(), mainstay_journal::LogError> {
    if *lost > 0 {
        let line = format!("WARN log lines were lost count={lost}");
        writer.append(Timestamp::now(), Stream::Stderr, line.as_bytes())?;
        *lost = 0;
    }
    let mut start = 0;
    for (time, end) in &batch.ends {
        writer.push_line(*time, Stream::Stdout, &batch.text[start..*end])?;
        start = *end;
    }
    writer.flush()
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for LogSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogSink").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(root: &std::path::Path) -> String {
        let file = root.join("test/current");
        std::fs::read_to_string(file).unwrap()
    }

    #[test]
    fn a_dropped_sink_has_written_every_line_in_order() {
        let root = tempfile::tempdir().unwrap();
        let writer = LogWriter::open(root.path(), "test", LogLimits::default()).unwrap();
        let sink = LogSink::start(writer, Duration::from_secs(3600)).unwrap();
        let lines = sink.lines();
        for n in 0..1000 {
            lines.push(Timestamp::now(), format!("line {n}").as_bytes());
        }
        drop(sink);
        let text = read(root.path());
        let seen: Vec<&str> = text
            .lines()
            .map(|l| l.split_once(" F ").unwrap().1)
            .collect();
        assert_eq!(seen.len(), 1000);
        assert!(
            seen.iter()
                .enumerate()
                .all(|(n, line)| *line == format!("line {n}"))
        );
    }

    #[test]
    fn a_flush_does_not_wait_for_the_window() {
        let root = tempfile::tempdir().unwrap();
        let writer = LogWriter::open(root.path(), "test", LogLimits::default()).unwrap();
        let sink = LogSink::start(writer, Duration::from_secs(3600)).unwrap();
        for round in 1..=3 {
            sink.lines().push(Timestamp::now(), b"line");
            sink.flush();
            assert_eq!(read(root.path()).lines().count(), round);
        }
    }

    #[test]
    fn lines_beyond_the_buffer_are_counted_and_dropped() {
        let shared = Arc::new(Shared::default());
        let lines = Lines {
            shared: Arc::clone(&shared),
        };
        for _ in 0..3 {
            lines.push(Timestamp::now(), &vec![b'x'; MAX_BUFFERED_BYTES / 2]);
        }
        let waiting = shared.lock();
        assert_eq!((waiting.ends.len(), waiting.dropped), (2, 1));
    }
}
