//! A process of its own whose writes fail after a few bytes.
//!
//! The test binary starts itself again with one ignored test as the entry, under a limit on the
//! size of files (RLIMIT_FSIZE).

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use mainstay_records::{write_durable, write_runtime};

const KIND: &str = "RECORDS_TEST_KIND";
const TARGET: &str = "RECORDS_TEST_TARGET";

/// Far beyond the limit, which is one block of 512 bytes.
static CONTENTS: [u8; 64 * 1024] = [b'n'; 64 * 1024];

pub(crate) const SIGXFSZ: i32 = 25;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Durable,
    Runtime,
}

#[test]
#[ignore = "started by other tests in a process of its own"]
fn entry() {
    let kind = std::env::var(KIND).expect("started by another test");
    let target = PathBuf::from(std::env::var_os(TARGET).unwrap());
    let written = match kind.as_str() {
        "Durable" => write_durable(&target, &CONTENTS, 0o600),
        _ => write_runtime(&target, &CONTENTS),
    };
    assert_eq!(written.unwrap_err().raw_os_error(), Some(27), "EFBIG");
}

/// Runs a write that fails with EFBIG; the child asserts that.
pub(crate) fn write_that_fails(kind: Kind, target: &Path) {
    let status = run(kind, target, "trap '' XFSZ");
    assert!(status.success(), "{status:?}");
}

/// Runs a write in whose middle the kernel kills the process.
pub(crate) fn write_that_dies(kind: Kind, target: &Path) {
    let status = run(kind, target, ":");
    assert_eq!(status.signal(), Some(SIGXFSZ), "{status:?}");
}

fn run(kind: Kind, target: &Path, signals: &str) -> ExitStatus {
    Command::new("sh")
        .arg("-c")
        .arg(format!(
            "{signals}; ulimit -c 0; ulimit -f 1; exec \"$0\" \"$@\""
        ))
        .arg(std::env::current_exe().unwrap())
        .args(["child::entry", "--exact", "--ignored"])
        .env(KIND, format!("{kind:?}"))
        .env(TARGET, target)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .unwrap()
}
