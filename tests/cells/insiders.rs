//! Processes of cells that ask the node for its power.

use mainstay_api::runtime::{ExecutableState, Namespace};
use mainstay_testkit::binary;

use super::cell_node::CellNode;

#[tokio::test]
async fn root_in_a_cell_has_no_role_even_where_it_finds_the_socket() {
    let test = CellNode::start("insiders");
    let socket = test.node.socket();
    let ask = format!(
        "{} cell list -e unix:{}",
        binary().display(),
        socket.display()
    );
    let own: &[Namespace] = &[];
    for (cell, share, why) in [
        ("own", own, "No such file"),
        ("mounts", &[Namespace::Mount], "No such file"),
        (
            "processes",
            &[Namespace::Mount, Namespace::Pid],
            "No such file",
        ),
        (
            "everything",
            &[
                Namespace::Mount,
                Namespace::Pid,
                Namespace::Network,
                Namespace::Ipc,
                Namespace::Uts,
                Namespace::Cgroup,
            ],
            "No such file",
        ),
    ] {
        test.allocate(cell, share).await;
        let pid = test.start_in(cell, "ask", &ask).await;
        let said = test.output(pid, 1).await;
        let said: String = said.into_iter().map(|item| item.line + "\n").collect();
        assert!(said.contains(why), "{cell}: {said}");
        let status = test.executable(cell, "ask").await;
        assert_eq!(status.state(), ExecutableState::Exited);
        assert_ne!(status.exit_code, 0, "{cell}: {said}");
    }
    // The same question from outside is answered.
    let answer = test.node.cli().run(["cell", "list"]).ok();
    assert!(answer.contains("everything"), "{answer}");
    test.finish().await;
}
