//! Names that are not UTF-8, through the API and on the command line.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{DiskUsageRequest, ListRequest, ReadRequest};
use mainstay_testkit::{TestNode, soon};

/// Names that are hard to tell apart: bytes, their code points, their escapes, and control
/// characters.
const NAMES: [&[u8]; 8] = [
    b"caf\xe9",
    b"\xff",
    "\u{10feff}".as_bytes(),
    b"\\xff",
    b"\\x5cxff",
    b"dev-disk\\x2duuid",
    b"two\nlines \x1b[31m",
    "größe".as_bytes(),
];

fn name(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

/// A directory for each name, with a file that contains the name, and a link with it as target.
fn tree(node: &TestNode) -> PathBuf {
    let root = node.scratch().join(name(b"n\xe4mes"));
    for bytes in NAMES {
        let dir = root.join(name(bytes));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("file"), bytes).unwrap();
        symlink(name(bytes), dir.join("link")).unwrap();
    }
    root
}

fn wire(path: &Path) -> String {
    mainstay_paths::to_wire(path.as_os_str().as_bytes()).into_owned()
}

#[tokio::test]
async fn what_is_listed_can_be_asked_for() {
    let node = TestNode::start();
    let root = tree(&node);
    let mut machine = MachineServiceClient::new(node.connect().await);
    let request = ListRequest {
        root: wire(&root),
        recurse: true,
        ..ListRequest::default()
    };
    let mut stream = machine.list(request).await.unwrap().into_inner();
    let (mut files, mut links) = (Vec::new(), Vec::new());
    while let Some(info) = soon("an entry", stream.message()).await.unwrap() {
        assert_eq!(info.error, "");
        // As a client that knows nothing of the encoding: with the very string it was sent.
        if info.relative_name.ends_with("/file") {
            let request = ReadRequest { path: info.name };
            let mut content = machine.read(request).await.unwrap().into_inner();
            let data = soon("the file", content.message()).await.unwrap().unwrap();
            files.push(data.bytes.to_vec());
        } else if !info.link.is_empty() {
            links.push(mainstay_paths::from_wire(&info.link));
        }
    }
    let mut expected: Vec<Vec<u8>> = NAMES.iter().map(|name| name.to_vec()).collect();
    expected.sort();
    assert_eq!(files, expected, "in byte order");
    assert_eq!(links, expected);

    for bytes in NAMES {
        let path = root.join(name(bytes));
        let request = DiskUsageRequest {
            paths: vec![wire(&path)],
            ..DiskUsageRequest::default()
        };
        let mut stream = machine.disk_usage(request).await.unwrap().into_inner();
        let info = soon("the usage", stream.message()).await.unwrap().unwrap();
        assert_eq!((info.error.as_str(), info.name), ("", wire(&path)));
    }
}

#[test]
fn what_ls_prints_can_be_typed() {
    let node = TestNode::start();
    let root = tree(&node);
    // By its bytes, escaped, and as JSON has it.
    let escaped = mainstay_paths::escape(root.as_os_str().as_bytes());
    assert!(escaped.ends_with("/n\\xe4mes"), "{escaped}");
    let listed = node.cli().run(["ls", &escaped]).ok();
    assert_eq!(node.cli().run(["ls", &wire(&root)]).ok(), listed);
    assert_eq!(
        node.cli().run([OsStr::new("ls"), root.as_os_str()]).ok(),
        listed
    );
    let mut names: Vec<&[u8]> = NAMES.to_vec();
    names.sort_unstable();
    assert_eq!(listed.lines().count(), names.len(), "{listed}");
    for (line, bytes) in listed.lines().zip(names) {
        assert!(!line.contains(char::is_control), "{line:?}");
        let file = format!("{escaped}/{line}/file");
        let child = node.cli().spawn(["cat", &file]);
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.as_slice()),
            (Some(0), bytes)
        );
        let usage = node
            .cli()
            .run(["du", "-s", &format!("{escaped}/{line}")])
            .ok();
        assert!(usage.trim_end().ends_with(&format!("/{line}")), "{usage}");
    }
    let missing = node
        .cli()
        .run(["cat", &format!("{escaped}/\\xfe")])
        .failed(6);
    assert!(missing.contains("/n\\xe4mes/\\xfe: "), "{missing}");

    node.cli().run(["cp", &escaped, "copy"]).ok();
    for bytes in NAMES {
        let copy = node.scratch().join("copy").join(name(bytes));
        assert_eq!(std::fs::read(copy.join("file")).unwrap(), bytes);
        assert_eq!(
            std::fs::read_link(copy.join("link")).unwrap(),
            Path::new(name(bytes))
        );
    }
}
