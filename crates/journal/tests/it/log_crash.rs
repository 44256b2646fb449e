use std::path::Path;

use mainstay_journal::{LogLimits, LogQuery, LogWriter, Stream, Timestamp};

use crate::child::{Victim, acknowledge};
use crate::log_support::{read, texts};

const LIMITS: LogLimits = LogLimits {
    file_bytes: 300_000,
    total_bytes: u64::MAX,
};

/// Lines from nothing to several records, derived from the number.
fn line(number: u64) -> Vec<u8> {
    let mut line = format!("{number} ").into_bytes();
    line.resize(
        line.len() + usize::try_from(number * 7919 % 40_000).unwrap(),
        b'x',
    );
    line
}

fn number(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b' ').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

pub(crate) fn append_forever(root: &Path) {
    let next = texts(root, "app")
        .iter()
        .filter_map(|line| number(line))
        .max()
        .unwrap_or(0)
        + 1;
    let mut writer = LogWriter::open(root, "app", LIMITS).unwrap();
    for number in next.. {
        writer
            .append(Timestamp::now(), Stream::Stdout, &line(number))
            .unwrap();
        acknowledge(number);
    }
}

#[test]
fn written_and_read_lines_survive_sigkill() {
    let dir = tempfile::tempdir().unwrap();
    drop(LogWriter::open(dir.path(), "app", LIMITS).unwrap());
    let mut acknowledged = Vec::new();
    for round in 0..8_u64 {
        let mut victim = Victim::start("append", dir.path());
        for _ in 0..=round * 29 % 53 {
            acknowledged.push(victim.acknowledged().unwrap());
        }
        // While it writes.
        let before = read(dir.path(), "app", LogQuery::default());
        acknowledged.extend(victim.kill());

        let after = read(dir.path(), "app", LogQuery::default());
        // The last line read may have been in the middle of being written.
        let settled = before.len().saturating_sub(1);
        assert_eq!(after[..settled], before[..settled]);
        let lines = texts(dir.path(), "app");
        let whole: Vec<_> = lines
            .iter()
            .filter_map(|found| number(found).filter(|number| *found == line(*number)))
            .collect();
        assert!(whole.is_sorted_by(|a, b| a < b), "once each, and in order");
        assert!(
            acknowledged
                .iter()
                .all(|number| whole.binary_search(number).is_ok())
        );
    }
}
