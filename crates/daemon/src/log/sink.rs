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
use mainstay_journal::{LogLimits, LogRetention, LogWriter, Stream, Timestamp};

use super::fold::{Folds, Repeatable};
use super::size_watch::{Alarm, SizeWatch};

/// Lines that would exceed this buffer are dropped.
const MAX_BUFFERED_BYTES: usize = 1 << 20;
/// A batch of this size is written without waiting for more.
const BATCH_BYTES: usize = 64 << 10;
/// A flush waits no longer than this for a disk that does not answer.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

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

/// Limits of a log, and its retention by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkLimits {
    pub log: LogLimits,
    pub retention: Option<LogRetention>,
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
    batch: Batch,
    folds: Folds,
    closed: bool,
    /// A flush waits: the batch is written at once.
    urgent: bool,
    /// Batches taken by the thread, and those of them it is done with.
    taken: u64,
    done: u64,
    /// The thread has ended: nothing is written any more.
    ended: bool,
}

/// Lines that are written together.
#[derive(Default)]
struct Batch {
    text: Vec<u8>,
    ends: Vec<(Timestamp, usize)>,
    dropped: u64,
    limits: Option<SinkLimits>,
    closed: bool,
}

impl Shared {
    /// A panic while the lock was held leaves the buffer as it was, which is still usable.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Batch {
    fn add(&mut self, time: Timestamp, line: &[u8]) {
        if self.text.len() + line.len() > MAX_BUFFERED_BYTES {
            self.dropped += 1;
            return;
        }
        self.text.extend_from_slice(line);
        self.ends.push((time, self.text.len()));
    }
}

impl Waiting {
    /// Moves the counts of repeated lines to the batch.
    fn unfold(&mut self) {
        let now = Timestamp::now();
        for line in self.folds.take_lines(now) {
            self.batch.add(now, line.as_bytes());
        }
    }

    fn window_ended(&self) -> bool {
        self.folds.time_left() == Some(Duration::ZERO)
    }
}

impl Lines {
    /// Adds one line, without its newline.
    pub fn push(&self, time: Timestamp, line: &[u8]) {
        self.add(&mut self.shared.lock(), time, line);
    }

    /// Adds one line, or counts it if it repeats another.
    pub fn push_repeatable(&self, time: Timestamp, line: &Repeatable<'_>) {
        let mut waiting = self.shared.lock();
        if let Some(text) = waiting.folds.add(time, line) {
            self.add(&mut waiting, time, text.as_bytes());
        }
    }

    fn add(&self, waiting: &mut Waiting, time: Timestamp, line: &[u8]) {
        let batch = &mut waiting.batch;
        batch.add(time, line);
        // The thread sleeps only while the buffer is empty or until a batch is full.
        if batch.ends.len() == 1 || batch.text.len() >= BATCH_BYTES {
            self.shared.changed.notify_one();
        }
    }

    /// Waits until the kernel has every line pushed so far, for at most a second; counts of repeated
    /// ones included, unless very many were written in this window already. Blocks.
    pub fn flush(&self) {
        let shared = &self.shared;
        let mut waiting = shared.lock();
        waiting.urgent = true;
        let wanted = waiting.taken + 1;
        shared.changed.notify_one();
        let _ = shared
            .written
            .wait_timeout_while(waiting, FLUSH_TIMEOUT, |waiting| {
                waiting.done < wanted && !waiting.ended
            });
    }
}

impl LogSink {
    /// Starts the writer thread; lines are buffered for at most `window`.
    pub fn start(writer: LogWriter, window: Duration) -> std::io::Result<Self> {
        Self::start_watched(writer, window, None)
    }

    /// Starts the writer thread of a log with retention, with an alarm for its size.
    pub fn start_watched(
        writer: LogWriter,
        window: Duration,
        watched: Option<(LogRetention, Alarm)>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let lines = Lines {
            shared: Arc::clone(&shared),
        };
        let watch = watched.map(|(retention, alarm)| SizeWatch::new(retention, alarm));
        let thread = std::thread::Builder::new()
            .name("log-writer".to_owned())
            .stack_size(128 << 10)
            .spawn(move || write_lines(&shared, writer, window, watch))?;
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
        self.lines.flush();
    }

    /// Changes the limits, from the next lines on.
    pub fn set_limits(&self, limits: SinkLimits) {
        self.lines.shared.lock().batch.limits = Some(limits);
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

fn write_lines(
    shared: &Shared,
    mut writer: LogWriter,
    window: Duration,
    mut watch: Option<SizeWatch>,
) {
    let mut failing = false;
    let mut lost = 0;
    loop {
        if let Some(watch) = &mut watch {
            watch.check(&mut writer);
        }
        let batch = next_batch(shared, window);
        if let Some(limits) = batch.limits {
            writer.set_retention(limits.log, limits.retention);
            if let (Some(watch), Some(retention)) = (&mut watch, limits.retention) {
                watch.set_retention(retention);
            }
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
        let mut waiting = shared.lock();
        waiting.done = waiting.taken;
        waiting.ended = batch.closed;
        drop(waiting);
        shared.written.notify_all();
        if batch.closed {
            return;
        }
    }
}

/// Waits for the first line, then up to `window` for more.
fn next_batch(shared: &Shared, window: Duration) -> Batch {
    let mut waiting = shared.lock();
    loop {
        if waiting.window_ended() {
            waiting.unfold();
        }
        if !waiting.batch.ends.is_empty() || waiting.closed || waiting.urgent {
            break;
        }
        waiting = match waiting.folds.time_left() {
            Some(left) => shared
                .changed
                .wait_timeout(waiting, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(waiting, _)| waiting),
            None => shared
                .changed
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner),
        };
    }
    let mut waiting = shared
        .changed
        .wait_timeout_while(waiting, window, |waiting| {
            waiting.batch.text.len() < BATCH_BYTES && !waiting.closed && !waiting.urgent
        })
        .map_or_else(|poisoned| poisoned.into_inner().0, |(waiting, _)| waiting);
    if waiting.closed || waiting.urgent && waiting.folds.may_be_early() {
        waiting.unfold();
    }
    waiting.urgent = false;
    waiting.taken += 1;
    let mut batch = std::mem::take(&mut waiting.batch);
    batch.closed = waiting.closed;
    batch
}

fn write_batch(
    writer: &mut LogWriter,
    batch: &Batch,
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
    use crate::log::Fullness;

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
        let batch = &shared.lock().batch;
        assert_eq!((batch.ends.len(), batch.dropped), (2, 1));
    }

    fn call(words: &str) -> Repeatable<'_> {
        Repeatable {
            kind: "INFO call",
            words,
            shared: words,
            key: words,
            rest: None,
            took: Duration::ZERO,
        }
    }

    #[test]
    fn a_flush_writes_the_counts_of_repeated_lines() {
        let root = tempfile::tempdir().unwrap();
        let writer = LogWriter::open(root.path(), "test", LogLimits::default()).unwrap();
        let sink = LogSink::start(writer, Duration::from_secs(3600)).unwrap();
        for _ in 0..3 {
            for _ in 0..10 {
                let line = call("method=/a");
                sink.lines().push_repeatable(Timestamp::now(), &line);
            }
            sink.flush();
        }
        let text = read(root.path());
        assert_eq!(text.lines().count(), 4, "{text}");
        assert_eq!(text.matches(" count=10 ").count(), 2, "{text}");
        assert_eq!(text.matches(" count=9 ").count(), 1, "{text}");
        drop(sink);
        assert_eq!(read(root.path()), text, "nothing is written twice");
    }

    #[test]
    fn a_closed_sink_has_written_its_counts() {
        let root = tempfile::tempdir().unwrap();
        let writer = LogWriter::open(root.path(), "test", LogLimits::default()).unwrap();
        let sink = LogSink::start(writer, Duration::ZERO).unwrap();
        let lines = sink.lines();
        for _ in 0..5 {
            lines.push_repeatable(Timestamp::now(), &call("method=/a"));
        }
        sink.close();
        assert!(read(root.path()).contains(" count=4 "));
        // No thread is left to answer.
        lines.flush();
    }

    #[test]
    fn flushes_under_load_see_their_own_lines() {
        let root = tempfile::tempdir().unwrap();
        let writer = LogWriter::open(root.path(), "test", LogLimits::default()).unwrap();
        let sink = LogSink::start(writer, Duration::from_millis(10)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (lines, root) = (sink.lines(), root.path());
                scope.spawn(move || {
                    for round in 0..50 {
                        let line = format!("thread {thread} round {round} end");
                        lines.push(Timestamp::now(), line.as_bytes());
                        lines.flush();
                        assert!(read(root).contains(&line), "{line}");
                    }
                });
            }
        });
    }

    #[test]
    fn a_log_with_retention_raises_the_alarm_before_it_loses_lines() {
        let root = tempfile::tempdir().unwrap();
        let limits = LogLimits {
            file_bytes: 1000,
            total_bytes: 1000,
        };
        let retention = LogRetention {
            min_age: Duration::from_secs(3600),
            max_bytes: 10_000,
        };
        let writer = LogWriter::open_retained(root.path(), "test", limits, Some(retention));
        let (send, raised) = std::sync::mpsc::channel();
        let alarm: Alarm = Box::new(move |fullness| send.send(fullness).unwrap());
        let watched = Some((retention, alarm));
        let sink = LogSink::start_watched(writer.unwrap(), Duration::ZERO, watched).unwrap();
        for _ in 0..200 {
            sink.lines().push(Timestamp::now(), &[b'x'; 60]);
            sink.flush();
        }
        drop(sink);
        let raised: Vec<Fullness> = raised.iter().collect();
        assert!(
            matches!(
                raised[0],
                Fullness::Filling {
                    bytes: 8001..10_000,
                    ..
                }
            ),
            "{raised:?}"
        );
        let early = |fullness: &Fullness| matches!(fullness, Fullness::RemovedEarly { .. });
        assert!(
            raised.len() > 1 && raised[1..].iter().all(early),
            "{raised:?}"
        );
    }
}
