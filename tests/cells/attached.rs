//! Standard input and terminals: `mainstay run` with both, and `Attach` with bad clients.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use mainstay_api::runtime::attach_cell_request::Message as ToCell;
use mainstay_api::runtime::attach_cell_response::Message as FromCell;
use mainstay_api::runtime::{
    AttachCellRequest, AttachCellResponse, AttachData, AttachOpen, Executable, ExecutableState,
    StartCellRequest, TerminalSize,
};
use mainstay_testkit::{OnTerminal, TestNode, binary, soon, wait_for_exit};
use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming};

use super::cell_node::CellNode;

/// A run whose standard input this test writes.
struct Piped {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Piped {
    fn start(node: &TestNode, command: &[&str]) -> Self {
        let cli = node.cli().stdin(Stdio::piped());
        let mut child = cli.spawn(["run", "--"].iter().chain(command));
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self {
            stdin: child.stdin.take(),
            stdout,
            child,
        }
    }

    fn write(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    /// Its exit code, what else it wrote, and what it said beside.
    fn ended(mut self) -> (Option<i32>, String, String) {
        drop(self.stdin.take());
        let (mut rest, mut said) = (String::new(), String::new());
        self.stdout.read_to_string(&mut rest).unwrap();
        let code = wait_for_exit(&mut self.child).code();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        (code, rest, said)
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `mainstay run -t` on a terminal of this test.
fn on_terminal(node: &TestNode, script: &str) -> OnTerminal {
    let mut command = Command::new(binary());
    command.args(["run", "-t", "--", "sh", "-c", script]);
    command_on_terminal(node, command)
}

fn command_on_terminal(node: &TestNode, mut command: Command) -> OnTerminal {
    command
        .env_clear()
        .env("HOME", node.scratch())
        .env("MAINSTAY_STATE", node.state())
        .env("TERM", "vt100")
        .current_dir(node.scratch());
    OnTerminal::run(&command, 80, 24)
}

#[tokio::test]
async fn a_file_as_stdin_reaches_the_program_byte_for_byte() {
    let test = CellNode::start("stdin-file");
    let path = test.node.scratch().join("input");
    // The last line has no newline, and gets none.
    let text: String = (0..100_000).map(|line| format!("{line}\n")).collect();
    let text = text + "the end";
    std::fs::write(&path, &text).unwrap();
    let cli = test.node.cli().stdin(File::open(&path).unwrap());
    let echoed = cli.run(["run", "--", "cat"]).ok();
    assert!(echoed == text, "{} of {} bytes", echoed.len(), text.len());
    let bytes: Vec<u8> = (0..=255_u8).cycle().take(1 << 20).collect();
    std::fs::write(&path, &bytes).unwrap();
    let cli = test.node.cli().stdin(File::open(&path).unwrap());
    let count = cli.run(["run", "--", "sh", "-c", "cksum"]).ok();
    let expected = Command::new("cksum")
        .stdin(File::open(&path).unwrap())
        .output();
    assert_eq!(count.as_bytes(), expected.unwrap().stdout);
    test.finish().await;
}

#[tokio::test]
async fn a_program_without_input_sees_an_empty_stdin() {
    let test = CellNode::start("stdin-none");
    let none = test.node.cli().run(["run", "--", "wc", "-c"]).ok();
    assert_eq!(none.trim(), "0");
    let cli = test.node.cli().stdin(Stdio::piped());
    let mut child = cli.spawn(["run", "--no-stdin", "--", "wc", "-c"]);
    // The pipe stays open: only the option ends the input.
    let stdin = child.stdin.take();
    let mut shown = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut shown)
        .unwrap();
    assert!(wait_for_exit(&mut child).success());
    drop(stdin);
    assert_eq!(shown.trim(), "0");
    let said = test.node.cli().run(["run", "-t", "--", "true"]).failed(2);
    assert!(said.contains("needs a terminal"), "{said}");
    test.finish().await;
}

#[tokio::test]
async fn a_program_that_does_not_read_its_stdin_ends_all_the_same() {
    let test = CellNode::start("stdin-unread");
    let path = test.node.scratch().join("input");
    std::fs::write(&path, vec![b'x'; 4 << 20]).unwrap();
    let cli = test.node.cli().stdin(File::open(&path).unwrap());
    let ran = cli.run(["run", "--", "sh", "-c", "exec <&-; echo closed; exit 3"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (3, "closed\n"),
        "{}",
        ran.stderr
    );
    test.finish().await;
}

#[tokio::test]
async fn a_run_resumes_after_its_daemon_was_killed() {
    let test = CellNode::start("stdin-resume");
    let mut run = Piped::start(&test.node, &["sh", "-c", "cat; echo done; exit 4"]);
    run.write("one\n");
    assert_eq!(run.line(), "one\n");
    let test = test.crash(|_| run.write("two\n"), TestNode::restart);
    assert_eq!(run.line(), "two\n");
    run.write("three");
    let (code, rest, said) = run.ended();
    assert_eq!((code, rest.as_str()), (Some(4), "threedone\n"), "{said}");
    let lost =
        "warning: connection to the node lost; the program runs on; reconnecting for up to 60s";
    assert!(said.starts_with(lost), "{said}");
    assert!(said.ends_with("\nnote: reconnected\n"), "{said}");
    test.finish().await;
}

#[tokio::test]
async fn no_line_is_lost_or_doubled_while_daemons_are_replaced() {
    let test = CellNode::start("run-resume");
    let script = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo $i; sleep 0.01; done; exit 9";
    let mut run = Piped::start(&test.node, &["sh", "-c", script]);
    for line in 1..=20 {
        assert_eq!(run.line(), format!("{line}\n"));
    }
    let test = test.crash(|_| (), TestNode::restart);
    assert_eq!(run.line(), "21\n");
    // A daemon that stops in order ends its streams with a status.
    let test = test.with_node(|mut node| {
        node.stop();
        node.restart()
    });
    let (code, rest, said) = run.ended();
    let expected: String = (22..=300).map(|line| format!("{line}\n")).collect();
    assert_eq!((code, rest), (Some(9), expected), "{said}");
    test.finish().await;
}

#[tokio::test]
async fn a_terminal_has_the_size_of_the_terminal_outside() {
    let test = CellNode::start("tty-size");
    let script = "trap 'stty size' WINCH; trap 'exit 5' INT; test -t 0 && test -t 1 && test -t 2 &&
        echo on $TERM; stty size; while :; do sleep 0.05; done";
    let mut run = on_terminal(&test.node, script);
    run.wait_for("on vt100");
    run.wait_for("24 80");
    run.resize(100, 30);
    run.wait_for("30 100");
    // Raw mode: the program gets the character, and its terminal makes it a signal.
    run.press("\x03");
    assert_eq!(run.ended().code(), Some(5));
    test.finish().await;
}

#[tokio::test]
async fn a_terminal_outlives_the_daemon() {
    let test = CellNode::start("tty-resume");
    let script =
        "stty -echo; echo ready; while read line; do echo \"got $line\"; printf '> '; done; exit 7";
    let mut run = on_terminal(&test.node, script);
    run.wait_for("ready");
    run.press("one\r");
    run.wait_for("got one\n>");
    let test = test.crash(
        |_| {
            run.wait_for("\nwarning: connection to the node lost");
            run.press("two\r");
        },
        TestNode::restart,
    );
    run.wait_for("\nnote: reconnected\n");
    run.wait_for("got two");
    let shown = run.text();
    assert_eq!(shown.matches("got one").count(), 1, "{shown}");
    run.press("\x04");
    assert_eq!(run.ended().code(), Some(7));
    test.finish().await;
}

#[tokio::test]
async fn the_terminal_is_restored_when_the_command_is_terminated() {
    let test = CellNode::start("tty-term");
    let mut run = on_terminal(
        &test.node,
        "trap 'exit 6' TERM; echo ready; while :; do sleep 0.05; done",
    );
    run.wait_for("ready");
    let pid = rustix::process::Pid::from_raw(i32::try_from(run.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(run.ended().code(), Some(6));
    test.finish().await;
}

#[tokio::test]
async fn a_cell_freed_during_a_run_is_named() {
    let test = CellNode::start("tty-freed");
    let mut run = on_terminal(&test.node, "printf 'ready> '; exec sleep 1000");
    run.wait_for("ready>");
    let name = test.list().await[0].cell.as_ref().unwrap().name.clone();
    test.client().await.free(&name).await.unwrap();
    assert_eq!(run.ended().code(), Some(1));
    run.wait_for(&format!(
        "\nerror: cell {name:?} was freed while the program ran"
    ));
    let shown = run.text();
    assert!(!shown.contains("attachment"), "{shown}");
    // Without a terminal, and in a cell that exists.
    test.allocate("web", &[]).await;
    let cli = test.node.cli().stdin(Stdio::piped());
    let mut child = cli.spawn(["run", "--cell", "web", "--", "sh", "-c", "echo up; cat"]);
    let mut run = Piped {
        stdin: child.stdin.take(),
        stdout: BufReader::new(child.stdout.take().unwrap()),
        child,
    };
    assert_eq!(run.line(), "up\n");
    test.client().await.free("web").await.unwrap();
    let (code, _, said) = run.ended();
    let freed = "error: cell \"web\" was freed while the program ran\n";
    assert_eq!((code, said.as_str()), (Some(1), freed));
    test.finish().await;
}

#[tokio::test]
async fn a_run_in_the_background_does_not_read_the_terminal() {
    let test = CellNode::start("tty-background");
    // With job control, as in an interactive shell: each job has a process group of its own.
    let script = "set -m; \"$0\" run -- sh -c 'wc -c; echo counted' & wait $!; echo ended $?";
    let mut shell = Command::new("bash");
    shell.args(["-c", script]).arg(binary());
    let mut shell = command_on_terminal(&test.node, shell);
    shell.wait_for("0\ncounted");
    shell.wait_for("ended 0");
    assert_eq!(shell.ended().code(), Some(0));
    test.finish().await;
}

#[tokio::test]
async fn a_run_moved_to_the_background_goes_on_and_reads_again_in_the_foreground() {
    let test = CellNode::start("tty-moved");
    let go = test.node.scratch().join("go");
    // The shell returns to the foreground itself when the job stops.
    let script = "set -m; \"$0\" run -- sh -c \"echo up; until test -e $1; do sleep 0.05; done; \
        echo went on; exec cat\"; bg; echo moved; read line; echo shell $line; read line; fg; \
        echo ended $?";
    let mut shell = Command::new("bash");
    shell.args(["-c", script]).arg(binary()).arg(&go);
    let mut shell = command_on_terminal(&test.node, shell);
    shell.wait_for("up");
    // Ctrl-Z stops the command only.
    shell.press("\x1a");
    shell.wait_for("moved");
    // The command does not take the line from the shell.
    shell.press("one\r");
    shell.wait_for("shell one");
    std::fs::write(&go, "").unwrap();
    shell.wait_for("went on");
    shell.press("\r");
    shell.press("two\r");
    // Once from the terminal, once from the program.
    shell.wait_until("an echo", |screen| {
        let shown = screen.contents();
        shown.lines().filter(|line| *line == "two").count() == 2
    });
    shell.press("\x04");
    shell.wait_for("ended 0");
    assert_eq!(shell.ended().code(), Some(0));
    test.finish().await;
}

/// An attachment over the API.
struct Attached {
    send: mpsc::UnboundedSender<AttachCellRequest>,
    answers: Streaming<AttachCellResponse>,
}

impl Attached {
    async fn open(test: &CellNode, first: ToCell) -> Result<Self, Status> {
        let (send, receive) = mpsc::unbounded_channel();
        let message = |message| AttachCellRequest {
            message: Some(message),
        };
        send.send(message(first)).unwrap();
        let requests = futures_util::stream::unfold(receive, |mut receive| async move {
            Some((receive.recv().await?, receive))
        });
        let mut cells = test.cells().await;
        let answers = soon("the attachment", cells.attach(requests)).await?;
        let answers = answers.into_inner();
        Ok(Self { send, answers })
    }

    fn send(&self, message: ToCell) {
        let message = Some(message);
        self.send.send(AttachCellRequest { message }).unwrap();
    }

    async fn next(&mut self) -> Result<Option<FromCell>, Status> {
        let answer = soon("a message", self.answers.message()).await?;
        Ok(answer.map(|answer| answer.message.unwrap()))
    }

    async fn fails(&mut self) -> Status {
        loop {
            match self.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ended without an error"),
                Err(status) => return status,
            }
        }
    }
}

fn open(name: &str, stdin: bool) -> ToCell {
    ToCell::Open(AttachOpen {
        cell_name: "web".to_owned(),
        executable_name: name.to_owned(),
        stdin,
        ..AttachOpen::default()
    })
}

fn executable(name: &str, command: &str) -> Executable {
    Executable {
        name: name.to_owned(),
        command: command.to_owned(),
        cell_name: "web".to_owned(),
        ..Executable::default()
    }
}

async fn start(test: &CellNode, executable: Executable) -> Result<i32, Status> {
    let executable = Some(executable);
    let started = test
        .cells()
        .await
        .start(StartCellRequest { executable })
        .await?;
    Ok(started.into_inner().pid)
}

#[tokio::test]
async fn a_bad_attachment_is_refused_and_harms_nobody() {
    let test = CellNode::start("attach-bad");
    test.allocate("web", &[]).await;
    start(&test, executable("plain", "sleep 1000"))
        .await
        .unwrap();
    let cat = Executable {
        stdin: true,
        ..executable("cat", "cat")
    };
    let pid = start(&test, cat).await.unwrap();
    for (rows, columns) in [(0, 80), (24, 65_536)] {
        let bad = Executable {
            terminal: Some(TerminalSize { rows, columns }),
            ..executable("bad", "true")
        };
        let status = start(&test, bad).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    }
    for (first, code) in [
        (ToCell::CloseStdin(0), Code::InvalidArgument),
        (open("plain", true), Code::FailedPrecondition),
        (open("nobody", true), Code::NotFound),
        (open("no name", true), Code::InvalidArgument),
    ] {
        let status = Attached::open(&test, first).await.err().unwrap();
        assert_eq!(status.code(), code, "{status}");
    }
    let data = |offset, length| {
        let data = vec![b'x'; length].into();
        ToCell::Stdin(AttachData { offset, data })
    };
    for (message, code) in [
        (data(0, (64 << 10) + 1), Code::InvalidArgument),
        (data(10, 1), Code::Aborted),
        (ToCell::CloseStdin(10), Code::Aborted),
        (open("cat", true), Code::InvalidArgument),
    ] {
        let mut attached = Attached::open(&test, open("cat", true)).await.unwrap();
        attached.send(message);
        let status = attached.fails().await;
        assert_eq!(status.code(), code, "{status}");
    }
    // Another attachment takes the input over, and the output is whole.
    let mut earlier = Attached::open(&test, open("cat", true)).await.unwrap();
    assert!(matches!(
        earlier.next().await,
        Ok(Some(FromCell::Attached(_)))
    ));
    let mut later = Attached::open(&test, open("cat", true)).await.unwrap();
    assert_eq!(earlier.fails().await.code(), Code::Aborted);
    let hello = |offset| {
        let data = "hello\n".into();
        ToCell::Stdin(AttachData { offset, data })
    };
    later.send(hello(0));
    // Sent again, as after a reconnect.
    later.send(hello(0));
    later.send(ToCell::CloseStdin(6));
    while let Some(message) = later.next().await.unwrap() {
        assert!(matches!(
            message,
            FromCell::Attached(_) | FromCell::StdinAccepted(6)
        ));
    }
    let lines = test.output(pid, 0).await;
    let lines: Vec<&str> = lines.iter().map(|item| item.line.as_str()).collect();
    assert_eq!(lines, ["hello"]);
    test.finish().await;
}

#[tokio::test]
async fn attachments_are_bounded_and_an_unread_one_slows_nobody() {
    let test = CellNode::start("attach-bounds");
    test.allocate("web", &[]).await;
    let pipe = test.node.scratch().join("go");
    let script = format!(
        "sh -c 'mkfifo {0}; read word <{0}; seq 600000; echo end; exit 8'",
        pipe.display()
    );
    let terminal = Some(TerminalSize {
        rows: 24,
        columns: 80,
    });
    let on_terminal = Executable {
        terminal,
        ..executable("tty", &script)
    };
    let pid = start(&test, on_terminal).await.unwrap();
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.push(Attached::open(&test, open("tty", false)).await.unwrap());
    }
    let status = Attached::open(&test, open("tty", false))
        .await
        .err()
        .unwrap();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let go = pipe.clone();
    soon(
        "the writer",
        tokio::task::spawn_blocking(move || {
            // Opens once the program has created it and reads.
            while std::fs::metadata(&go).is_err() {
                std::thread::yield_now();
            }
            std::fs::write(&go, "go\n").unwrap();
        }),
    )
    .await
    .unwrap();
    // Four megabytes pass; nobody reads them but the log.
    let lines = test.output(pid, 0).await;
    assert_eq!(lines.last().unwrap().line, "end");
    assert_eq!(lines[0].line, "1", "no carriage return");
    let status = test.executable("web", "tty").await;
    assert_eq!(
        (status.state(), status.exit_code),
        (ExecutableState::Exited, 8)
    );
    // One that reads late gets the end, and learns by the offset what it has missed.
    let mut late = unread.pop().unwrap();
    let mut shown = Vec::new();
    let mut expected = 0;
    let mut lost = 0;
    while let Some(message) = late.next().await.unwrap() {
        if let FromCell::Output(output) = message {
            lost += output.offset - expected;
            expected = output.offset + output.data.len() as u64;
            shown.extend_from_slice(&output.data);
        }
    }
    assert!(shown.ends_with(b"end\r\n"));
    assert!(lost > 0 && shown.len() < 4 << 20, "{lost} {}", shown.len());
    test.finish().await;
}
