//! `List`, `Read`, `Copy`, and `mainstay ls`, `cat`, `cp`.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use mainstay_api::machine::list_request::Type;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{CopyRequest, FileInfo, ListRequest, ReadRequest};
use mainstay_testkit::procfs::Memory;
use mainstay_testkit::{TestNode, soon};
use tonic::{Code, Status};

/// A small tree with every kind of entry.
fn tree(node: &TestNode) -> std::path::PathBuf {
    let root = node.scratch().join("tree");
    std::fs::create_dir_all(root.join("b/deep/er")).unwrap();
    std::fs::create_dir(root.join("empty")).unwrap();
    std::fs::write(root.join("a"), "hello").unwrap();
    std::fs::write(root.join("b/c"), vec![7; 300_000]).unwrap();
    std::fs::write(root.join("b/deep/er/x"), "x").unwrap();
    std::fs::write(root.join("b-1"), "").unwrap();
    std::fs::set_permissions(root.join("a"), PermissionsExt::from_mode(0o4751)).unwrap();
    symlink("a", root.join("link")).unwrap();
    symlink("/nowhere", root.join("dangling")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    drop(socket);
    root
}

async fn list(node: &TestNode, request: ListRequest) -> Result<Vec<FileInfo>, Status> {
    let mut machine = MachineServiceClient::new(node.connect().await);
    let mut stream = machine.list(request).await?.into_inner();
    let mut all = Vec::new();
    while let Some(info) = soon("the listing", stream.message()).await? {
        all.push(info);
    }
    Ok(all)
}

fn of(root: &Path) -> ListRequest {
    ListRequest {
        root: root.display().to_string(),
        ..ListRequest::default()
    }
}

fn names(all: &[FileInfo]) -> Vec<&str> {
    all.iter().map(|info| info.relative_name.as_str()).collect()
}

#[tokio::test]
async fn a_listing_is_depth_first_in_byte_order_with_the_root_first() {
    let node = TestNode::start();
    let root = tree(&node);
    let flat = list(&node, of(&root)).await.unwrap();
    let direct = [".", "a", "b", "b-1", "dangling", "empty", "link", "socket"];
    assert_eq!(names(&flat), direct);
    let deep = ListRequest {
        recurse: true,
        ..of(&root)
    };
    let all = list(&node, deep.clone()).await.unwrap();
    assert_eq!(
        names(&all),
        [
            ".",
            "a",
            "b",
            "b/c",
            "b/deep",
            "b/deep/er",
            "b/deep/er/x",
            "b-1",
            "dangling",
            "empty",
            "link",
            "socket"
        ]
    );
    let two = ListRequest {
        recursion_depth: 2,
        ..deep
    };
    assert_eq!(
        names(&list(&node, two).await.unwrap()),
        [
            ".", "a", "b", "b/c", "b/deep", "b-1", "dangling", "empty", "link", "socket"
        ]
    );
}

#[tokio::test]
async fn entries_have_the_mode_bits_clients_know() {
    let node = TestNode::start();
    let root = tree(&node);
    let all = list(&node, of(&root)).await.unwrap();
    let find = |name: &str| all.iter().find(|info| info.relative_name == name).unwrap();
    let file = find("a");
    assert_eq!(file.mode, 1 << 23 | 0o751);
    assert_eq!((file.size, file.is_dir), (5, false));
    assert_eq!(file.name, root.join("a").display().to_string());
    let modified = std::fs::metadata(root.join("a"))
        .unwrap()
        .modified()
        .unwrap();
    let modified = modified
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    assert_eq!(u64::try_from(file.modified), Ok(modified));
    assert_eq!(file.uid, rustix::process::geteuid().as_raw());
    assert!(find("b").is_dir && find("b").mode & 1 << 31 != 0);
    assert_eq!(
        (find("link").link.as_str(), find("link").mode & 1 << 27),
        ("a", 1 << 27)
    );
    assert_eq!(find("dangling").link, "/nowhere");
    assert_eq!(find("socket").mode & 1 << 24, 1 << 24);

    let links = ListRequest {
        types: vec![Type::Symlink.into()],
        ..of(&root)
    };
    assert_eq!(
        names(&list(&node, links).await.unwrap()),
        ["dangling", "link"]
    );
}

#[tokio::test]
async fn roots_are_resolved_and_completed() {
    let node = TestNode::start();
    let root = tree(&node);
    let file = list(&node, of(&root.join("a"))).await.unwrap();
    assert_eq!(names(&file), ["a"]);
    let link = list(&node, of(&root.join("link"))).await.unwrap();
    assert_eq!(names(&link), ["a"], "a link at the root is followed");
    let without_slash = ListRequest {
        root: root.join("b").display().to_string()[1..].to_owned(),
        ..ListRequest::default()
    };
    assert_eq!(
        names(&list(&node, without_slash).await.unwrap()),
        [".", "c", "deep"]
    );
    let top = list(&node, ListRequest::default()).await.unwrap();
    assert_eq!(
        (top[0].name.as_str(), top[0].relative_name.as_str()),
        ("/", ".")
    );
    assert!(names(&top).contains(&"etc"));
}

#[tokio::test]
async fn bad_listings_are_refused() {
    let node = TestNode::start();
    for (request, code) in [
        (of(Path::new("/no/such/place")), Code::NotFound),
        (of(Path::new("/a\0b")), Code::InvalidArgument),
        (
            ListRequest {
                types: vec![77],
                ..of(Path::new("/"))
            },
            Code::InvalidArgument,
        ),
    ] {
        assert_eq!(list(&node, request).await.unwrap_err().code(), code);
    }
}

/// How much a listing of any size may add to the RSS of the node.
const MAX_LISTING_GROWTH: u64 = 16 << 20;

#[tokio::test]
async fn a_huge_listing_needs_little_memory_and_ends_with_its_reader() {
    let node = TestNode::start();
    let mut machine = MachineServiceClient::new(node.connect().await);
    machine.version(()).await.unwrap();
    let before = Memory::of(node.pid()).unwrap().resident;
    let request = ListRequest {
        recurse: true,
        ..of(Path::new("/proc"))
    };
    let mut stream = machine.list(request).await.unwrap().into_inner();
    for _ in 0..20_000 {
        // Processes come and go under it; each such entry is skipped or told, never the end.
        soon("an entry", stream.message()).await.unwrap().unwrap();
    }
    let after = Memory::of(node.pid()).unwrap().resident;
    let growth = after.saturating_sub(before);
    assert!(growth < MAX_LISTING_GROWTH, "RSS grew by {growth} bytes");
    assert_ne!(open_in_proc(&node), 0, "the listing is still going on");
    drop(stream);
    soon("the directories to be closed", async {
        while open_in_proc(&node) > 0 {
            machine.version(()).await.unwrap();
        }
    })
    .await;
    node.wait_for_log("code=CANCELLED");
}

/// The number of directories below `/proc` that the node has open.
fn open_in_proc(node: &TestNode) -> usize {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", node.pid())).unwrap();
    descriptors
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.starts_with("/proc"))
        .count()
}

async fn read(node: &TestNode, path: &str) -> Result<Vec<u8>, Status> {
    let mut machine = MachineServiceClient::new(node.connect().await);
    let request = ReadRequest {
        path: path.to_owned(),
    };
    let mut stream = machine.read(request).await?.into_inner();
    let mut all = Vec::new();
    while let Some(data) = soon("the file", stream.message()).await? {
        assert!(!data.bytes.is_empty(), "no empty chunks");
        all.extend_from_slice(&data.bytes);
    }
    Ok(all)
}

#[tokio::test]
async fn a_file_comes_byte_for_byte() {
    let node = TestNode::start();
    let root = tree(&node);
    let large: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(root.join("large"), &large).unwrap();
    let path = |name: &str| root.join(name).display().to_string();
    assert_eq!(read(&node, &path("large")).await.unwrap(), large);
    assert_eq!(read(&node, &path("link")).await.unwrap(), b"hello");
    assert_eq!(read(&node, &path("b-1")).await.unwrap(), b"");
    let kernel = std::fs::read("/proc/version").unwrap();
    assert_eq!(read(&node, "/proc/version").await.unwrap(), kernel);
}

#[tokio::test]
async fn anything_but_a_regular_file_is_refused() {
    let node = TestNode::start();
    let root = tree(&node);
    let fifo = root.join("fifo");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
    for (path, code, words) in [
        (
            root.display().to_string(),
            Code::InvalidArgument,
            "path must be a regular file",
        ),
        (
            fifo.display().to_string(),
            Code::InvalidArgument,
            "path must be a regular file",
        ),
        (
            "/dev/zero".to_owned(),
            Code::InvalidArgument,
            "path must be a regular file",
        ),
        (
            "etc/hosts".to_owned(),
            Code::InvalidArgument,
            "path is not absolute",
        ),
        (String::new(), Code::InvalidArgument, "path is not absolute"),
        ("/no/such/file".to_owned(), Code::NotFound, "/no/such/file"),
    ] {
        let status = read(&node, &path).await.unwrap_err();
        assert_eq!(status.code(), code, "{path}: {status}");
        assert!(status.message().contains(words), "{path}: {status}");
    }
}

async fn copy(node: &TestNode, path: &Path) -> Result<(Vec<u8>, String), Status> {
    let mut machine = MachineServiceClient::new(node.connect().await);
    let request = CopyRequest {
        root_path: path.display().to_string(),
    };
    let mut stream = machine.copy(request).await?.into_inner();
    let (mut archive, mut left_out) = (Vec::new(), String::new());
    while let Some(data) = soon("the archive", stream.message()).await? {
        assert!(left_out.is_empty(), "what was left out is told last");
        archive.extend_from_slice(&data.bytes);
        left_out = data
            .metadata
            .map(|metadata| metadata.error)
            .unwrap_or_default();
    }
    Ok((archive, left_out))
}

/// The output of `tar` for an archive.
fn tar(node: &TestNode, archive: &[u8], args: &[&str]) -> String {
    let path = node.scratch().join("archive.tar.gz");
    std::fs::write(&path, archive).unwrap();
    let output = std::process::Command::new("tar")
        .args(args)
        .arg("-f")
        .arg(&path)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn a_tree_is_an_archive_that_tar_reads() {
    let node = TestNode::start();
    let root = tree(&node);
    let (archive, left_out) = copy(&node, &root).await.unwrap();
    let listed = tar(&node, &archive, &["-tz"]);
    let names: Vec<&str> = listed.lines().collect();
    assert_eq!(
        names,
        [
            "a",
            "b/",
            "b/c",
            "b/deep/",
            "b/deep/er/",
            "b/deep/er/x",
            "b-1",
            "dangling",
            "empty/",
            "link"
        ]
    );
    assert!(left_out.contains("socket"), "{left_out}");
    let out = node.scratch().join("out");
    std::fs::create_dir(&out).unwrap();
    tar(&node, &archive, &["-xzp", "-C", out.to_str().unwrap()]);
    assert_eq!(std::fs::read(out.join("b/c")).unwrap(), vec![7; 300_000]);
    assert_eq!(
        std::fs::read_link(out.join("link")).unwrap(),
        Path::new("a")
    );
    let mode = std::fs::metadata(out.join("a"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o4751);

    let (single, left_out) = copy(&node, &root.join("a")).await.unwrap();
    assert_eq!(
        (tar(&node, &single, &["-tz"]).as_str(), left_out.as_str()),
        ("a\n", "")
    );
}

#[tokio::test]
async fn files_that_change_while_they_are_copied_never_damage_the_archive() {
    let node = TestNode::start();
    let root = node.scratch().join("changing");
    std::fs::create_dir(&root).unwrap();
    let path = root.join("file");
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let changing = std::thread::spawn({
        let (stop, path) = (std::sync::Arc::clone(&stop), path.clone());
        move || {
            let file = std::fs::File::options().write(true).open(path).unwrap();
            let mut length = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                length = (length + 700_001) % (4 << 20);
                file.set_len(length).unwrap();
            }
        }
    });
    for _ in 0..20 {
        let (archive, _) = copy(&node, &root).await.unwrap();
        assert_eq!(tar(&node, &archive, &["-tz"]), "file\n");
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    changing.join().unwrap();
}

#[tokio::test]
async fn bad_copies_are_refused() {
    let node = TestNode::start();
    let status = copy(&node, Path::new("etc")).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(
        status.message().contains("path is not absolute"),
        "{status}"
    );
    let status = copy(&node, Path::new("/no/such/tree")).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
}

#[test]
fn ls_cat_and_cp_do_what_their_names_say() {
    let node = TestNode::start();
    let root = tree(&node);
    let path = root.display().to_string();
    let listed = node.cli().run(["ls", &path]).ok();
    assert_eq!(listed.lines().next(), Some("a"));
    let long = node.cli().run(["ls", "-lR", &path]).ok();
    assert!(
        long.lines()
            .any(|line| line.starts_with("-rwsr-x--x") && line.ends_with(" a")),
        "{long}"
    );
    assert!(long.contains("link -> a"), "{long}");
    let json = node.cli().run(["ls", "-o", "json", &path]).ok();
    assert_eq!(json.lines().count(), 8);

    let file = root.join("a").display().to_string();
    assert_eq!(node.cli().run(["cat", &file]).ok(), "hello");
    assert!(
        node.cli()
            .run(["cat", "/dev/zero"])
            .failed(2)
            .contains("regular file")
    );
    assert!(
        node.cli()
            .run(["cat", "/no/such"])
            .failed(6)
            .contains("/no/such")
    );

    let said = node.cli().run(["cp", &path, "copied"]).failed(1);
    assert!(said.contains("socket"), "what was left out is told: {said}");
    let copied = node.scratch().join("copied");
    assert_eq!(std::fs::read(copied.join("b/c")).unwrap(), vec![7; 300_000]);
    node.cli().run(["cp", &file, "a.tar.gz"]).ok();
    assert!(node.scratch().join("a.tar.gz").exists());
    node.cli().run(["cp", "/no/such", "nothing"]).failed(6);
    assert!(
        !node.scratch().join("nothing").exists(),
        "a refused copy leaves nothing behind"
    );
}

#[tokio::test]
async fn unread_listings_do_not_block_other_calls() {
    let node = TestNode::start();
    let channel = node.connect().await;
    let mut unread = Vec::new();
    let mut refused = 0;
    for _ in 0..200 {
        let request = ListRequest {
            recurse: true,
            ..of(Path::new("/"))
        };
        let mut machine = MachineServiceClient::new(channel.clone());
        match machine.list(request).await {
            Ok(stream) => unread.push(stream),
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "there is a bound");
    let mut other = MachineServiceClient::new(node.connect_locally().await);
    soon("another call", other.processes(())).await.unwrap();
    soon("another call", other.mounts(())).await.unwrap();
    drop(unread);
    // As soon as the readers are gone there is room again.
    soon("a place", async {
        while let Err(status) = list(&node, of(Path::new("/etc"))).await {
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        }
    })
    .await;
}
