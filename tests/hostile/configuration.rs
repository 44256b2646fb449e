//! Configuration files that cannot be meant: each is refused by name and line, before the node
//! has touched anything.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use mainstay_testkit::{TestNode, binary};

use super::noise;

/// The bound of every error message.
const MAX_STDERR_BYTES: usize = 4096;

/// The error of a node that refuses the configuration file prepared by `make`.
fn refusal(make: impl FnOnce(&Path)) -> String {
    // The port is taken, so a node that bound it before it had read everything would fail
    // otherwise and with another code.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let builder = TestNode::builder();
    let path = builder.config_file();
    make(&path);
    let file = path.display().to_string();
    let builder = builder
        .arg("--config")
        .arg(&file)
        .arg("--listen")
        .arg(taken.local_addr().unwrap().to_string());
    let (said, code) = builder.refused();
    let length = said.len();
    assert!(length < MAX_STDERR_BYTES, "{length} bytes were said");
    assert_eq!(code, 2, "{said}");
    assert!(said.contains(&file), "names the file: {said}");
    assert!(!said.contains("panicked"), "{said}");
    assert!(!builder.state().exists(), "the state directory was made");
    said
}

fn refusal_of(text: impl AsRef<[u8]>) -> String {
    refusal(|path| std::fs::write(path, text).unwrap())
}

#[test]
fn unknown_keys_and_wrong_values_are_named_with_their_line() {
    for (text, line, word) in [
        ("\n\nlistne = '127.0.0.1:1'\n", 3, "listne"),
        ("[limits]\nconections = 5\n", 2, "conections"),
        ("[limit]\nconnections = 5\n", 1, "limit"),
        ("[log]\nlevel = 7\n", 2, "7"),
        ("listen = 50000\n", 1, "50000"),
        ("listen = 'nowhere at all'\n", 1, "address"),
        ("listen = '127.0.0.1'\n", 1, "address"),
        ("listen = '127.0.0.1:65536'\n", 1, "address"),
        ("listen = ['127.0.0.1:1']\n", 1, "listen"),
        ("names = 'one'\n", 1, "names"),
        ("stop_timeout = -1\n", 1, "-1"),
        ("stop_timeout = 'for ever'\n", 1, "for ever"),
        (
            "[limits]\nconnections = 99999999999999999999\n",
            2,
            "connections",
        ),
        ("[limits]\nconnections = -1\n", 2, "connections"),
        ("[log]\nlevel = 'info'\nlevel = 'warn'\n", 3, "duplicate"),
        ("[log\n", 1, "log"),
        ("names = [", 1, "names"),
        ("state = \"unfinished\n", 1, "state"),
    ] {
        let said = refusal_of(text);
        assert!(said.contains(&format!("line {line}")), "{text:?}: {said}");
        assert!(said.contains(word), "{text:?}: {said}");
    }
}

#[test]
fn a_file_that_is_not_utf8_is_refused() {
    for seed in 0..4 {
        refusal_of(noise(seed, 5000));
    }
    refusal_of(binary_head());
    refusal_of([0; 4096]);
    let said = refusal_of(b"names = []\n# \xff\xfe\n");
    assert!(said.contains("UTF-8"), "{said}");
}

fn binary_head() -> Vec<u8> {
    let bytes = std::fs::read(binary()).unwrap();
    bytes[..64 << 10].to_vec()
}

#[test]
fn a_huge_file_is_refused_with_a_short_error() {
    refusal_of("a".repeat(10 << 20));
    refusal_of(format!("names = ['{}']", "a".repeat(10 << 20)));
    refusal_of("[a]\n".repeat((10 << 20) / 4));
}

#[test]
fn endless_nesting_is_refused() {
    let said = refusal_of(format!("names = {}", "[".repeat(100_000)));
    assert!(said.contains("line 1"), "{said}");
    refusal_of(format!("{} = 1", "a.".repeat(100_000)));
}

#[test]
fn a_path_that_is_no_regular_file_is_refused() {
    let said = refusal(|path| std::fs::create_dir(path).unwrap());
    assert!(said.contains("directory"), "{said}");
    let said = refusal(|_| ());
    assert!(said.contains("No such file"), "{said}");
    let said = refusal(|path| std::os::unix::fs::symlink(path, path).unwrap());
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_file_that_may_not_be_read_is_refused() {
    if !rustix::process::geteuid().is_root() {
        let said = refusal(|path| {
            std::fs::write(path, "").unwrap();
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o000)).unwrap();
        });
        assert!(said.contains("ermission denied"), "{said}");
        return;
    }
    // Root may read everything, so somebody else tries, with a binary they can reach.
    let home = tempfile::tempdir().unwrap();
    std::fs::set_permissions(home.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = home.path().join("mainstay");
    std::fs::copy(binary(), &program).unwrap();
    let file = home.path().join("config.toml");
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let output = std::process::Command::new(&program)
        .args(["serve", "--state", "/nonexistent/state", "--config"])
        .arg(&file)
        .env_clear()
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(file.to_str().unwrap()), "{said}");
    assert!(said.contains("ermission denied"), "{said}");
}

#[tokio::test]
async fn a_reload_of_such_a_file_changes_nothing() {
    let node = TestNode::builder().config("names = []\n").start();
    for bytes in [noise(1, 5000), vec![b'a'; 10 << 20], b"[".repeat(100_000)] {
        std::fs::write(node.config_file(), bytes).unwrap();
        node.signal(rustix::process::Signal::HUP);
        super::assert_unharmed(&node).await;
    }
    let reloaded = crate::daemon::wait_for_event(&node, "configuration reloaded").await;
    std::fs::write(node.config_file(), "names = []\n").unwrap();
    node.signal(rustix::process::Signal::HUP);
    reloaded.await.unwrap();
    super::assert_unharmed(&node).await;
    let log = std::fs::read(node.state().join("logs/mainstay/current")).unwrap();
    let length = log.len();
    assert!(length < 64 << 10, "the log has grown to {length} bytes");
}
