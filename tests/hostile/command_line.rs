//! The command against arguments, files and nodes that mean it no good.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mainstay_identity::{ClientConfig, PkiDir, tls::ServerTls};
use mainstay_testkit::{Cli, TestNode};
use tokio_rustls::rustls::{ServerConnection, StreamOwned};

use super::noise;

/// The bound of every error message.
const MAX_STDERR_BYTES: usize = 4096;

/// One error of one line that a person can read.
#[track_caller]
fn assert_plain_error(said: &str) {
    assert!(said.starts_with("error: "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!said.contains("panicked"), "{said}");
    let length = said.len();
    assert!(length < MAX_STDERR_BYTES, "{length} bytes were said");
}

fn alone() -> (tempfile::TempDir, impl Fn() -> Cli) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().to_owned();
    (home, move || {
        Cli::new(&path).env("MAINSTAY_STATE", path.join("no-node-here"))
    })
}

#[test]
fn a_huge_argument_is_an_error() {
    let node = TestNode::start();
    let huge = "x".repeat(100_000);
    // What the node says about it is short; the command may repeat what its user has typed.
    let said = node.cli().run(["logs", &huge]).failed(6);
    assert_plain_error(&said);
    let said = node.cli().run(["events", "--after", &huge]).failed(2);
    assert_plain_error(&said);
    node.cli().run(["version", "--context", &huge]).failed(2);
    let said = node.cli().run(["version", "-e", &huge]);
    assert!(matches!(said.code, 2 | 3), "{}", said.code);
    assert_ne!(node.cli().run(["version", "-n", &huge]).code, 0);
    node.cli().run(["version", "-o", &huge]).failed(2);
    node.cli().run(["version", "--timeout", &huge]).failed(2);
    node.cli().run([&huge]).failed(2);
    let many: Vec<String> = (0..5000).map(|number| format!("-nnode{number}")).collect();
    let output = node.cli().run([vec!["version".to_owned()], many].concat());
    assert_ne!(output.code, 0);
    assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
    node.cli().run(["version"]).ok();
}

#[test]
fn an_argument_that_is_not_utf8_is_an_error() {
    let node = TestNode::start();
    let bad = || OsString::from_vec(b"\xff\xfe/\x80".to_vec());
    for before in [
        &["logs"][..],
        &["version", "-e"],
        &["version", "--context"],
        &[],
    ] {
        let args = before.iter().map(OsString::from).chain([bad()]);
        let output = node.cli().run(args);
        assert_eq!(output.code, 2, "{before:?}: {}", output.stderr);
        assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
    }
    // A file may be named by any bytes; this one is not there.
    let args = [OsString::from("version"), "--client-config".into(), bad()];
    let said = node.cli().run(args).failed(2);
    assert_plain_error(&said);
}

fn write_secret(path: &Path, bytes: &[u8]) {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn an_invalid_client_configuration_is_refused() {
    let (home, cli) = alone();
    let path = home.path().join("client.yaml");
    let bomb: String = (1..20)
        .map(|n| {
            format!(
                "a{n}: &a{n} [{}]\n",
                vec![format!("*a{}", n - 1); 10].join(",")
            )
        })
        .collect();
    for (what, bytes) in [
        ("garbage", noise(2, 5000)),
        ("zeros", vec![0; 5000]),
        ("a list", b"- one\n- two\n".to_vec()),
        ("a number for a text", b"context: [1]\n".to_vec()),
        ("nothing", Vec::new()),
        (
            "no certificate",
            b"context: a\ncontexts:\n  a:\n    endpoints: [127.0.0.1:1]\n    crt: '%%%'\n".to_vec(),
        ),
        ("deep lists", b"[".repeat(100_000)),
        (
            "deep maps",
            (0..2000)
                .map(|n| format!("{}a:\n", " ".repeat(n)))
                .collect::<String>()
                .into_bytes(),
        ),
        (
            "aliases of aliases",
            format!("a0: &a0 x\n{bomb}context: a\n").into_bytes(),
        ),
        (
            "twenty megabytes",
            [&b"context: "[..], &vec![b'a'; 20 << 20], b"\n"].concat(),
        ),
        ("twenty megabytes of keys", b"a: b\n".repeat(4 << 20)),
    ] {
        write_secret(&path, &bytes);
        let said = cli().run(["version", "--client-config", "client.yaml"]);
        assert_eq!(said.code, 2, "{what}: {}", said.stderr);
        assert_plain_error(&said.stderr);
    }
}

/// A node's own credentials with another endpoint.
fn directed(node: &TestNode, endpoint: &str) {
    let mut config = ClientConfig::load(&node.state().join("client.yaml")).unwrap();
    for context in config.contexts.values_mut() {
        context.endpoints = vec![endpoint.to_owned()];
    }
    config.save(&node.scratch().join("directed.yaml")).unwrap();
}

/// A listener that treats every connection alike, until the test ends.
fn listen_with(treat: impl Fn(std::net::TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            treat(stream.unwrap());
        }
    });
    address
}

/// Calls `endpoint`, asserts that the timeout holds, and returns standard error and exit code.
fn ask(node: &TestNode, endpoint: &str) -> (String, i32) {
    directed(node, endpoint);
    let began = Instant::now();
    let args = [
        "version",
        "--timeout",
        "1s",
        "--client-config",
        "directed.yaml",
    ];
    let output = node.cli().run(args);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_plain_error(&output.stderr);
    (output.stderr, output.code)
}

/// Keeps whatever is sent from being answered, until the other side goes.
fn swallow(mut stream: impl Read) {
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
}

#[test]
fn a_node_that_never_answers_times_out() {
    let node = TestNode::start();
    let (said, code) = ask(&node, &listen_with(swallow));
    assert!(matches!(code, 3 | 9), "{code}: {said}");
    assert!(said.contains("1s"), "says how long it waited: {said}");

    // The handshake is done, and then nothing more comes.
    let names = mainstay_identity::NodeNames {
        common_name: "mute".to_owned(),
        dns: vec!["localhost".to_owned()],
        ips: vec![node.listen().ip()],
    };
    let pki = PkiDir::new(node.state().join("pki"));
    let identity = pki.ensure(&names, jiff::Timestamp::now()).unwrap().node;
    let config = ServerTls::new(&identity).unwrap().config();
    let mute = listen_with(move |stream| {
        let session = ServerConnection::new(Arc::clone(&config)).unwrap();
        swallow(StreamOwned::new(session, stream));
    });
    let (said, code) = ask(&node, &mute);
    assert_eq!(code, 9, "{said}");
}

#[test]
fn a_node_of_another_protocol_is_a_clear_error() {
    let node = TestNode::start();
    let shouting = |words: &'static [u8]| {
        listen_with(move |mut stream| {
            let _ = stream.write_all(words);
            swallow(stream);
        })
    };
    for words in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\xff\xfe\xfd\xfc\xfb\xfa\x00\x00\x00\x00",
        b"\x1b[2J\x1b]0;owned\x07",
    ] {
        let (said, code) = ask(&node, &shouting(words));
        assert!(matches!(code, 3 | 4), "{code}: {said}");
        assert!(!said.contains('\x1b'), "{said:?}");
    }
    let endless = listen_with(|mut stream| while stream.write_all(&[0x16; 4096]).is_ok() {});
    let (said, code) = ask(&node, &endless);
    assert!(matches!(code, 3 | 4), "{code}: {said}");
}

#[test]
fn a_node_that_hangs_up_at_once_is_unreachable() {
    let node = TestNode::start();
    let (said, code) = ask(&node, &listen_with(drop));
    assert_eq!(code, 3, "{said}");
}

type Treatment = fn(UnixStream);

#[test]
fn a_socket_that_is_no_node_is_a_clear_error() {
    let (home, cli) = alone();
    let treatments: [(&str, Treatment, &[i32]); 3] = [
        ("mute", |stream| swallow(stream), &[3, 9]),
        ("closing", |stream| drop(stream), &[3]),
        (
            "nonsense",
            |mut stream| {
                let _ = stream.write_all(&noise(6, 4096));
                swallow(stream);
            },
            &[1, 3],
        ),
    ];
    for (name, treat, codes) in treatments {
        let listener = UnixListener::bind(home.path().join(name)).unwrap();
        std::thread::spawn(move || {
            listener
                .incoming()
                .for_each(|stream| treat(stream.unwrap()))
        });
        for command in [&["version"][..], &["logs", "mainstay"], &["events"]] {
            let began = Instant::now();
            let endpoint = format!("unix:{name}");
            let args = [command, &["--timeout", "1s", "-e", &endpoint]].concat();
            let output = cli().run(args);
            assert!(
                codes.contains(&output.code),
                "{name} {command:?}: {} {}",
                output.code,
                output.stderr
            );
            assert_plain_error(&output.stderr);
            assert!(
                began.elapsed() < Duration::from_secs(5),
                "{name} {command:?}"
            );
        }
    }
    std::fs::write(home.path().join("file"), "").unwrap();
    let said = cli().run(["version", "-e", "unix:file"]).failed(3);
    assert_plain_error(&said);
}
