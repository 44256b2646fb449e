//! A daemon in a chroot: its `/` is not a mount point.

use std::os::unix::fs::PermissionsExt;

use mainstay_api::runtime::Namespace;
use mainstay_testkit::{TestNode, binary};

use super::cell_node::CellNode;

/// Starts the binary in a chroot, a plain directory with parts of the host below, in a mount
/// namespace of its own.
const SCRIPT: &str = r#"#!/bin/sh
exec unshare --mount sh -ec '
    root=$1; program=$2; shift 2
    for part in bin lib lib64 sbin usr etc proc sys dev tmp var; do
        [ -L /$part ] && { cp -P /$part "$root/$part"; continue; }
        [ -d /$part ] || continue
        mkdir -p "$root/$part"
        mount --rbind /$part "$root/$part"
    done
    mkdir -p "$root$(dirname "$program")"
    mount --bind "$(dirname "$program")" "$root$(dirname "$program")"
    touch "$root/inside-the-chroot"
    exec chroot "$root" "$program" "$@"
' sh ROOT PROGRAM "$@"
"#;

#[tokio::test]
async fn a_daemon_in_a_chroot_runs_cells_in_it() {
    let builder = TestNode::builder();
    let root = builder.scratch().join("root");
    std::fs::create_dir(&root).unwrap();
    let script = builder.scratch().join("in-chroot");
    let text = SCRIPT
        .replace("ROOT", root.to_str().unwrap())
        .replace("PROGRAM", binary().to_str().unwrap());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let test = CellNode::start_as("chroot", builder.program(&script));
    for (cell, share) in [
        ("own", &[][..]),
        ("shared", &[Namespace::Mount, Namespace::Pid]),
    ] {
        test.allocate(cell, share).await;
        let pid = test.start_in(cell, "look", "ls /inside-the-chroot").await;
        let lines = test.output(pid, 0).await;
        let lines: Vec<&str> = lines.iter().map(|item| item.line.as_str()).collect();
        assert_eq!(lines, ["/inside-the-chroot"], "{cell}");
        let status = test.executable(cell, "look").await;
        assert_eq!(status.exit_code, 0, "{cell}");
    }
    test.finish().await;
}
