//! A build of mainstay that is broken in a way that the last line of its own file names: an upgrade
//! to it must fail, and the node must return to the version before.
//!
//! - `BROKEN exit`: ends at once
//! - `BROKEN hang`: never serves
//! - `BROKEN kill PID... -- PROGRAM`: kills these processes and executes the program, a daemon that
//!   serves and has lost what ran
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use mainstay_slots::Stamp;
use rustix::process::{Pid, Signal, kill_process};

#[used]
static STAMP: Stamp = Stamp::new("6.6.6", "badbadbadbad", 1);

fn main() -> ExitCode {
    assert!(STAMP.facts().is_some());
    let own = std::fs::read("/proc/self/exe").unwrap();
    let line = own.rsplit(|byte| *byte == b'\n').next().unwrap();
    let line = String::from_utf8_lossy(line).into_owned();
    let mut words = line.split(' ');
    assert_eq!(words.next(), Some("BROKEN"), "{line}");
    match words.next() {
        Some("hang") => loop {
            std::thread::park();
        },
        Some("kill") => {
            for pid in words.by_ref().take_while(|word| *word != "--") {
                let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
                kill_process(pid, Signal::KILL).unwrap();
            }
            let program = words.next().unwrap();
            let error = Command::new(program)
                .args(std::env::args_os().skip(1))
                .exec();
            panic!("{program}: {error}");
        }
        _ => ExitCode::from(3),
    }
}
