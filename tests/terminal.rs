//! The command on a terminal: text of a node reaches it without control characters, and tables fit.

use std::convert::Infallible;
use std::path::Path;
use std::process::Command;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use http::{HeaderMap, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use mainstay_api::common::{Data, Metadata};
use mainstay_api::machine::{DiskUsageInfo, Event, FileInfo, Version, VersionResponse};
use mainstay_api::os::{Process, ProcessInfo, ProcessesResponse};
use mainstay_testkit::{OnTerminal, TestNode, binary};
use prost::Message;
use tokio::net::UnixListener;

/// Sets the title of a terminal, clears it, and does the same with the 8-bit forms.
const HOSTILE: &str = "\x1b]0;owned\x07\x1b[2J\u{9b}2J\u{202e}\rsafe";

type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

/// Answers calls with hostile text wherever the contract has text.
fn answer(path: &str) -> Response<Body> {
    let method = path.rsplit('/').next().unwrap_or_default();
    let text = || HOSTILE.to_owned();
    let message = match method {
        "Processes" => ProcessesResponse {
            messages: vec![Process {
                processes: vec![ProcessInfo {
                    command: text(),
                    args: text(),
                    user: text(),
                    state: text(),
                    ..ProcessInfo::default()
                }],
                ..Process::default()
            }],
        }
        .encode_to_vec(),
        "Logs" | "Read" | "Dmesg" => Data {
            metadata: Some(Metadata {
                error: text(),
                ..Metadata::default()
            }),
            bytes: text().into_bytes().into(),
        }
        .encode_to_vec(),
        "List" => FileInfo {
            name: text(),
            relative_name: text(),
            ..FileInfo::default()
        }
        .encode_to_vec(),
        "DiskUsage" => DiskUsageInfo {
            name: text(),
            error: text(),
            ..DiskUsageInfo::default()
        }
        .encode_to_vec(),
        "Events" => Event {
            id: text(),
            data: Some(prost_types::Any {
                type_url: text(),
                value: text().into_bytes(),
            }),
            ..Event::default()
        }
        .encode_to_vec(),
        "Version" => VersionResponse {
            messages: vec![Version {
                metadata: Some(Metadata {
                    hostname: text(),
                    ..Metadata::default()
                }),
                ..Version::default()
            }],
        }
        .encode_to_vec(),
        _ => return refused(),
    };
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap());
    framed.put_slice(&message);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    let frames = [
        Ok(Frame::data(framed.freeze())),
        Ok(Frame::trailers(trailers)),
    ];
    let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
    let answer = Response::builder().header("content-type", "application/grpc");
    answer.body(body).unwrap()
}

/// An error whose text a client decodes to hostile text with a line of its own.
fn refused() -> Response<Body> {
    let encoded: String = format!("{HOSTILE}\nerror: forged")
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect();
    Response::builder()
        .header("content-type", "application/grpc")
        .header("grpc-status", "5")
        .header("grpc-message", encoded)
        .body(http_body_util::Empty::new().boxed_unsync())
        .unwrap()
}

async fn serve(listener: UnixListener) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let service =
            tower::service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                Ok::<_, Infallible>(answer(request.uri().path()))
            });
        let service = hyper_util::service::TowerToHyperService::new(service);
        tokio::spawn(
            hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service),
        );
    }
}

/// Runs the command with a terminal as stdin, stdout and stderr; returns the bytes the terminal got.
async fn on_terminal(home: &Path, args: &str) -> Vec<u8> {
    let line = format!("{} -e unix:node.sock {args}", binary().display());
    let mut command = Command::new("script");
    command
        .args(["--quiet", "--flush", "--command", &line, "/dev/null"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .env("TERM", "xterm")
        // No control sequence is the command's own.
        .env("NO_COLOR", "1")
        .current_dir(home)
        .stdin(std::process::Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output());
    mainstay_testkit::soon(args, output)
        .await
        .unwrap()
        .unwrap()
        .stdout
}

#[tokio::test]
async fn text_of_a_hostile_node_reaches_a_terminal_without_control_characters() {
    let home = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(home.path().join("node.sock")).unwrap();
    let serving = tokio::spawn(serve(listener));
    for args in [
        "version",
        "version -o json",
        "version -o yaml",
        "free",
        "health",
        "ps",
        "ps -o json",
        "ps -o yaml",
        "logs x",
        "logs x -o json",
        "cat /x",
        "dmesg",
        "ls /x",
        "ls -l /x",
        "ls /x -o yaml",
        "du /x",
        "events",
        "events -o json",
        "cell list",
        "top --once",
    ] {
        let shown = on_terminal(home.path(), args).await;
        let text = String::from_utf8(shown).unwrap_or_else(|error| panic!("{args}: {error}"));
        assert!(!text.is_empty(), "{args} shows nothing");
        // The terminal itself turns newlines into carriage return and newline.
        let text = text.replace("\r\n", "\n");
        let bad = |c: char| c.is_control() && !matches!(c, '\n' | '\t') || c == '\u{202e}';
        assert!(!text.contains(bad), "{args}: {text:?}");
        assert!(!text.contains("\nerror: forged"), "{args}: {text:?}");
    }
    serving.abort();
}

#[tokio::test]
async fn text_of_a_node_is_unchanged_in_a_pipe() {
    let home = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(home.path().join("node.sock")).unwrap();
    let serving = tokio::spawn(serve(listener));
    let mut command = Command::new(binary());
    command
        .args(["-e", "unix:node.sock", "logs", "x"])
        .env_clear()
        .env("HOME", home.path())
        .current_dir(home.path());
    let output = tokio::task::spawn_blocking(move || command.output());
    let output = mainstay_testkit::soon("logs", output)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(output.stdout, HOSTILE.as_bytes());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains('\x1b') && said.contains("safe"), "{said:?}");
    serving.abort();
}

#[test]
fn processes_are_cut_to_the_width_of_the_terminal() {
    let node = TestNode::start();
    let state = node.state().display().to_string();
    let mut command = Command::new(binary());
    command
        .args(["ps", "--filter", &state])
        .env_clear()
        .env("HOME", node.scratch())
        .env("MAINSTAY_STATE", node.state())
        .env("TERM", "xterm")
        .current_dir(node.scratch());
    let mut terminal = OnTerminal::run(&command, 80, 12);
    let pid = node.pid().to_string();
    terminal.wait_for(&pid);
    assert!(terminal.ended().success());
    let shown = terminal.text();
    let rows: Vec<&str> = shown.lines().filter(|row| !row.trim().is_empty()).collect();
    assert!(rows[0].starts_with("PID "), "{shown}");
    for row in &rows[1..] {
        assert!(
            row.starts_with(|c: char| c.is_ascii_digit()),
            "wrapped: {shown}"
        );
    }
    let piped = node.cli().run(["ps", "--filter", &state]).ok();
    let own = piped
        .lines()
        .find(|row| row.starts_with(&format!("{pid} ")))
        .unwrap();
    assert!(own.len() > 80 && own.contains(&state), "{piped}");
}
