//! Random writes and reads compared with the plain contents of the files.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use mainstay_journal::{LogLimits, LogQuery, LogStore, LogWriter, Stream, Timestamp};
use proptest::prelude::*;

use crate::log_support::{Line, drain, files, first_file, lines_of, plainly};
use crate::support::block_on;

const MILLISECOND: i64 = 1_000_000;

#[derive(Clone, Debug)]
enum Step {
    Line {
        stderr: bool,
        text: Vec<u8>,
        later: i64,
    },
    Partial {
        stderr: bool,
        text: Vec<u8>,
    },
    Flush,
    Reopen,
    /// Something that is not of the writer, while no writer is there.
    Foreign(Vec<u8>),
    Follow {
        tail: Option<u64>,
    },
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..60),
        2 => "[a-z ]{0,200}".prop_map(String::into_bytes),
        1 => (16_000..35_000_usize).prop_map(|len| vec![b'h'; len]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (any::<bool>(), text(), -1200..400_i64)
            .prop_map(|(stderr, text, later)| Step::Line { stderr, text, later }),
        4 => (any::<bool>(), prop::collection::vec(any::<u8>(), 0..30))
            .prop_map(|(stderr, text)| Step::Partial { stderr, text }),
        3 => Just(Step::Flush),
        1 => Just(Step::Reopen),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Step::Foreign),
        1 => prop::option::of(0..20_u64).prop_map(|tail| Step::Follow { tail }),
    ]
}

/// The lines of a query, selected forwards from all records.
fn expected(files: &[Vec<Line>], query: &LogQuery) -> Vec<Line> {
    let first = |file: &[Line], reached: &dyn Fn(Timestamp) -> bool| {
        file.iter()
            .position(|line| line.time.is_some_and(reached))
            .unwrap_or(file.len())
    };
    let mut lines = Vec::new();
    for file in files {
        let start = query
            .since
            .map_or(0, |since| first(file, &|time| time >= since));
        let end = query
            .until
            .map_or(file.len(), |until| first(file, &|time| time > until));
        lines.extend_from_slice(&file[start.min(end)..end]);
    }
    let Some(tail) = query.tail else { return lines };
    // The records of each logical line, in the order in which the lines end.
    let mut ended: Vec<Vec<usize>> = Vec::new();
    let mut open = [Vec::new(), Vec::new()];
    for (at, line) in lines.iter().enumerate() {
        let own = &mut open[usize::from(line.stream == Stream::Stderr)];
        own.push(at);
        if !line.partial {
            ended.push(std::mem::take(own));
        }
    }
    let mut unfinished: Vec<_> = open.into_iter().filter(|own| !own.is_empty()).collect();
    unfinished.extend(ended);
    unfinished.sort_by_key(|own| own.last().copied());
    let skip = unfinished
        .len()
        .saturating_sub(usize::try_from(tail).unwrap());
    let mut wanted: Vec<_> = unfinished.drain(skip..).flatten().collect();
    wanted.sort_unstable();
    wanted.into_iter().map(|at| lines[at].clone()).collect()
}

struct World {
    root: tempfile::TempDir,
    store: LogStore,
    limits: LogLimits,
    writer: Option<LogWriter>,
    clock: i64,
    /// By stream, what was given to the writer since its opening: logical lines, the last one
    /// perhaps unfinished.
    given: Vec<(bool, Vec<u8>)>,
    followers: Vec<Follower>,
}

struct Follower {
    task: tokio::task::JoinHandle<Vec<Line>>,
    history: Vec<Line>,
    /// The number of records when it started.
    records_before: usize,
}

const LAST: &[u8] = b"the very last line";

impl World {
    fn new(file_bytes: u64) -> Self {
        let root = tempfile::tempdir().unwrap();
        let limits = LogLimits {
            file_bytes,
            total_bytes: u64::MAX,
        };
        let store = LogStore::open(root.path()).unwrap();
        let writer = Some(LogWriter::open(root.path(), "app", limits).unwrap());
        let (given, followers) = (Vec::new(), Vec::new());
        Self {
            root,
            store,
            limits,
            writer,
            clock: 0,
            given,
            followers,
        }
    }

    fn path(&self) -> &Path {
        self.root.path()
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.clock * MILLISECOND)
    }

    fn write(&mut self, stderr: bool, text: &[u8], partial: bool) {
        let stream = if stderr {
            Stream::Stderr
        } else {
            Stream::Stdout
        };
        let now = self.now();
        let writer = self.writer.as_mut().unwrap();
        if partial {
            writer.push_partial(now, stream, text).unwrap();
        } else {
            writer.push_line(now, stream, text).unwrap();
        }
        let mut given = text.to_vec();
        given.extend_from_slice(if partial { b"" } else { b"\n" });
        self.given.push((stderr, given));
    }

    fn reopen(&mut self) {
        self.writer.as_mut().unwrap().flush().unwrap();
        self.writer = None;
        self.check_given();
        self.writer = Some(LogWriter::open(self.path(), "app", self.limits).unwrap());
    }

    /// Everything given stands in the files, byte for byte, up to the ends of lines that the
    /// writer was closed on.
    fn check_given(&self) {
        for stderr in [false, true] {
            let mut written = Vec::new();
            for line in plainly(self.path(), "app").concat() {
                if (line.stream == Stream::Stderr) == stderr && line.time.is_some() {
                    written.extend(line.text);
                    written.extend_from_slice(if line.partial { b"" } else { b"\n" });
                }
            }
            let of_stream = self.given.iter().filter(|(of, _)| *of == stderr);
            let given: Vec<u8> = of_stream.flat_map(|(_, text)| text.clone()).collect();
            let without_ends = |bytes: &[u8]| -> Vec<u8> {
                bytes
                    .iter()
                    .copied()
                    .filter(|byte| *byte != b'\n')
                    .collect()
            };
            assert_eq!(without_ends(&written), without_ends(&given));
        }
    }

    async fn apply(&mut self, step: Step) {
        match step {
            Step::Line {
                stderr,
                text,
                later,
            } => {
                self.clock += later;
                self.write(stderr, &text, false);
            }
            Step::Partial { stderr, text } => self.write(stderr, &text, true),
            Step::Flush => self.writer.as_mut().unwrap().flush().unwrap(),
            Step::Reopen => self.reopen(),
            Step::Foreign(mut bytes) => {
                self.writer.as_mut().unwrap().flush().unwrap();
                self.writer = None;
                bytes.push(b'\n');
                let newest = files(self.path(), "app").pop();
                let newest = newest.unwrap_or_else(|| first_file(self.path(), "app"));
                OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(newest)
                    .unwrap()
                    .write_all(&bytes)
                    .unwrap();
                self.writer = Some(LogWriter::open(self.path(), "app", self.limits).unwrap());
            }
            Step::Follow { tail } => self.follow(tail).await,
        }
    }

    async fn follow(&mut self, tail: Option<u64>) {
        let query = LogQuery {
            tail,
            follow: true,
            ..LogQuery::default()
        };
        let mut stream = self.store.read("app", query).await.unwrap();
        let files = plainly(self.path(), "app");
        let task = tokio::spawn(async move {
            let mut lines: Vec<Line> = Vec::new();
            while lines.last().is_none_or(|line| line.text != LAST) {
                let chunk = stream
                    .next()
                    .await
                    .unwrap()
                    .expect("following does not end");
                assert!(!chunk.missed());
                lines.extend(lines_of(&chunk));
            }
            lines
        });
        let history = expected(&files, &query);
        let records_before = files.concat().len();
        self.followers.push(Follower {
            task,
            history,
            records_before,
        });
    }

    async fn finish(&mut self) {
        self.write(false, LAST, false);
        self.writer.as_mut().unwrap().flush().unwrap();
        self.check_given();
        let all = plainly(self.path(), "app").concat();
        for follower in self.followers.drain(..) {
            let lines = follower.task.await.unwrap();
            let (history, live) = lines.split_at(follower.history.len());
            assert_eq!(history, follower.history);
            assert_eq!(live, &all[follower.records_before..]);
        }
    }

    async fn check_query(&self, query: LogQuery) {
        let mut stream = self.store.read("app", query).await.unwrap();
        let found = drain(&mut stream).await;
        assert_eq!(
            found,
            expected(&plainly(self.path(), "app"), &query),
            "{query:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn written_lines_are_read_back(
        steps in prop::collection::vec(step(), 1..60),
        file_bytes in prop_oneof![100..5_000_u64, Just(10_000_000)],
        queries in prop::collection::vec(
            (prop::option::of(0..40_u64), prop::option::of(-5000..5000_i64), prop::option::of(-5000..5000_i64)),
            8,
        ),
    ) {
        block_on(async {
            let mut world = World::new(file_bytes);
            for step in steps {
                world.apply(step).await;
            }
            world.finish().await;
            for (tail, since, until) in queries {
                let time = |milliseconds: i64| Timestamp::from_nanos(milliseconds * MILLISECOND);
                let (since, until) = (since.map(time), until.map(time));
                world.check_query(LogQuery { tail, since, until, follow: false }).await;
            }
        });
    }

    #[test]
    fn tail_returns_the_last_lines_for_every_number(
        texts in prop::collection::vec((any::<bool>(), any::<bool>(), prop::collection::vec(any::<u8>(), 0..50)), 0..40),
        file_bytes in 100..3_000_u64,
    ) {
        block_on(async {
            let mut world = World::new(file_bytes);
            for (stderr, partial, text) in &texts {
                world.write(*stderr, text, *partial);
                world.apply(Step::Flush).await;
            }
            for tail in 0..=texts.len() as u64 + 1 {
                world.check_query(LogQuery { tail: Some(tail), ..LogQuery::default() }).await;
            }
        });
    }
}

#[test]
fn tail_of_large_files_crosses_blocks_and_files() {
    block_on(async {
        let mut world = World::new(400_000);
        for n in 0..9000_usize {
            world.clock += 1;
            world.write(
                n % 5 == 0,
                format!("{n} {}", "z".repeat(n % 200)).as_bytes(),
                n % 7 == 0,
            );
        }
        world.finish().await;
        assert!(files(world.path(), "app").len() > 2);
        for tail in [1, 2, 10, 500, 3000, 7000, 20_000] {
            world
                .check_query(LogQuery {
                    tail: Some(tail),
                    ..LogQuery::default()
                })
                .await;
        }
        for since in [0, 1, 4500, 8999, 9000, 10_000] {
            let since = Some(Timestamp::from_nanos(since * MILLISECOND));
            for tail in [None, Some(100)] {
                world
                    .check_query(LogQuery {
                        tail,
                        since,
                        ..LogQuery::default()
                    })
                    .await;
                world
                    .check_query(LogQuery {
                        tail,
                        until: since,
                        ..LogQuery::default()
                    })
                    .await;
            }
        }
    });
}
