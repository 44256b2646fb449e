//! Commands that run with fewer privileges than this process.
//!
//! The test binary executes itself with one ignored test as the entry, which drops privileges and
//! executes the command.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use mainstay_cells::capabilities::Capabilities;
use mainstay_cells::seccomp::Profile;
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

const COMMAND: &str = "CELLS_TEST_COMMAND";
const KEEP: &str = "CELLS_TEST_KEEP";
const USER: &str = "CELLS_TEST_USER";
const PROFILE: &str = "CELLS_TEST_PROFILE";

/// The privileges of the command. Without a profile it is unconfined.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Confinement<'a> {
    /// Capabilities in addition to the default, comma-separated.
    pub(crate) keep: &'a str,
    pub(crate) user: u32,
    pub(crate) profile: &'a str,
}

impl Confinement<'_> {
    /// Runs a command to its exit, in its own mount namespace.
    pub(crate) fn run(self, command: &[&str]) -> Output {
        Command::new("unshare")
            .args(["--mount", "--propagation", "private", "--"])
            .arg(std::env::current_exe().unwrap())
            .args(["child::entry", "--exact", "--ignored", "--nocapture"])
            .env(COMMAND, command.join("\n"))
            .env(KEEP, self.keep)
            .env(USER, self.user.to_string())
            .env(PROFILE, self.profile)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

#[test]
#[ignore = "started by other tests in a process of its own"]
fn entry() {
    let given = |name| std::env::var(name).expect("started by another test");
    let keep = given(KEEP);
    let granted = Capabilities::parse(keep.split(',').filter(|name| !name.is_empty()))
        .unwrap()
        .grant()
        .unwrap();
    let profile = match given(PROFILE).as_str() {
        "" => Profile::Unconfined,
        profile => profile.parse().unwrap(),
    };
    let filter = profile.filter().unwrap();
    let user: u32 = given(USER).parse().unwrap();
    let command = given(COMMAND);
    let mut words = command.split('\n');
    let mut command = Command::new(words.next().unwrap());
    command.args(words);

    let change_user = || {
        set_thread_groups(&[])?;
        set_thread_gid(rustix::process::Gid::from_raw(user))?;
        set_thread_uid(rustix::process::Uid::from_raw(user))
    };
    granted.drop_to(change_user).unwrap();
    if let Some(filter) = filter {
        filter.install().unwrap();
    }
    panic!("not executed: {}", command.exec());
}

#[test]
#[ignore = "started by other tests in a process of its own"]
fn threads() {
    let sum = std::thread::spawn(|| 40 + 2).join().unwrap();
    assert_eq!(sum, 42);
}
