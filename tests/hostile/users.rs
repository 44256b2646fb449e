//! Other users of the same machine.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use mainstay_testkit::{TestNode, binary, require};

use super::assert_unharmed;

/// Nobody in particular.
const OTHER: u32 = 65534;

#[tokio::test]
async fn another_user_cannot_open_the_socket() {
    // Only root can start a process of another user.
    require!(Root);
    let node = TestNode::start();
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    // The binary may stand where other users cannot look, and so does the test's directory.
    open(node.scratch(), 0o755);
    let program = node.scratch().join("mainstay");
    std::fs::copy(binary(), &program).unwrap();
    let endpoint = format!("unix:{}", node.socket().display());
    let try_it = || {
        let output = Command::new(&program)
            .args(["version", "-e", &endpoint])
            .env_clear()
            .current_dir("/")
            .uid(OTHER)
            .gid(OTHER)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("ermission denied"), "{said}");
    };
    try_it();
    // An administrator who opens the state directory for reading has not opened the door yet.
    open(&node.state(), 0o755);
    try_it();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&node.state().join("run")) & 0o777, 0o700);
    assert_eq!(mode(&node.socket()) & 0o777, 0o600);
    assert_unharmed(&node).await;
}
