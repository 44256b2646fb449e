//! `DiskUsage` and `mainstay du`.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{DiskUsageInfo, DiskUsageRequest};
use mainstay_testkit::{TestNode, soon};
use tonic::{Code, Status};

fn tree(node: &TestNode) -> PathBuf {
    let root = node.scratch().join("tree");
    std::fs::create_dir_all(root.join("b/deep/er")).unwrap();
    std::fs::create_dir(root.join("empty")).unwrap();
    std::fs::write(root.join("a"), "hello").unwrap();
    std::fs::write(root.join("b/c"), vec![7; 300_000]).unwrap();
    std::fs::write(root.join("b/deep/er/x"), vec![7; 50_000]).unwrap();
    std::fs::hard_link(root.join("b/c"), root.join("b/second-name")).unwrap();
    symlink("/usr", root.join("link")).unwrap();
    root
}

async fn usage(node: &TestNode, request: DiskUsageRequest) -> Result<Vec<DiskUsageInfo>, Status> {
    let mut machine = MachineServiceClient::new(node.connect().await);
    let mut stream = machine.disk_usage(request).await?.into_inner();
    let mut all = Vec::new();
    while let Some(info) = soon("the usage", stream.message()).await? {
        all.push(info);
    }
    Ok(all)
}

fn of(path: &Path) -> DiskUsageRequest {
    DiskUsageRequest {
        paths: vec![path.display().to_string()],
        ..DiskUsageRequest::default()
    }
}

fn names(all: &[DiskUsageInfo]) -> Vec<&str> {
    all.iter().map(|info| info.relative_name.as_str()).collect()
}

/// The size of a path according to `du`.
fn du(path: &Path) -> i64 {
    let output = Command::new("du")
        .args(["-s", "--block-size=1"])
        .arg(path)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    said.split('\t').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn directories_come_after_what_is_in_them_with_the_sizes_of_du() {
    let node = TestNode::start();
    let root = tree(&node);
    let all = usage(&node, of(&root)).await.unwrap();
    let directories = ["b/deep/er", "b/deep", "b", "empty", "."];
    assert_eq!(names(&all), directories);
    for info in &all {
        let path = root.join(&info.relative_name);
        assert_eq!(info.size, du(&path), "{}", info.relative_name);
        assert_eq!(
            Path::new(&info.name),
            root.join(&info.relative_name).components().as_path()
        );
        assert_eq!(info.error, "");
    }

    let files = DiskUsageRequest {
        all: true,
        ..of(&root)
    };
    assert_eq!(
        names(&usage(&node, files).await.unwrap()),
        [
            "a",
            "b/c",
            "b/deep/er/x",
            "b/deep/er",
            "b/deep",
            "b",
            "empty",
            "link",
            "."
        ],
        "a hard link that was counted already is not told again"
    );
}

#[tokio::test]
async fn depth_and_threshold_filter_the_output_not_the_sizes() {
    let node = TestNode::start();
    let root = tree(&node);
    let whole = du(&root);
    let with_depth = |recursion_depth| DiskUsageRequest {
        recursion_depth,
        ..of(&root)
    };
    for (depth, told) in [
        (1, vec!["."]),
        (2, vec!["b", "empty", "."]),
        (3, vec!["b/deep", "b", "empty", "."]),
        (i32::MAX, vec!["b/deep/er", "b/deep", "b", "empty", "."]),
    ] {
        let all = usage(&node, with_depth(depth)).await.unwrap();
        assert_eq!(names(&all), told);
        assert_eq!(all.last().unwrap().size, whole);
    }
    let with_threshold = |threshold| DiskUsageRequest {
        threshold,
        all: true,
        ..of(&root)
    };
    for (threshold, told) in [
        (200_000, vec!["b/c", "b", "."]),
        (i64::MAX, vec![]),
        (-1, vec!["link"]),
        (-8192, vec!["a", "empty", "link"]),
    ] {
        // A short link takes nothing, where the file system keeps it in the inode.
        let all = usage(&node, with_threshold(threshold)).await.unwrap();
        assert_eq!(names(&all), told, "{threshold}");
    }
    let most = usage(&node, with_threshold(i64::MIN)).await.unwrap();
    assert_eq!(most.last().unwrap().size, whole);
}

#[tokio::test]
async fn each_path_is_counted_by_itself_and_one_that_fails_stops_no_other() {
    let node = TestNode::start();
    let root = tree(&node);
    let text = |path: &Path| path.display().to_string();
    symlink(&root, node.scratch().join("to-tree")).unwrap();
    let request = DiskUsageRequest {
        recursion_depth: 1,
        paths: vec![
            text(&root),
            "/no/such/place".to_owned(),
            "/a\0b".to_owned(),
            text(&root)[1..].to_owned(),
            text(&node.scratch().join("to-tree")),
            text(&root.join("b/c")),
        ],
        ..DiskUsageRequest::default()
    };
    let all = usage(&node, request).await.unwrap();
    let (whole, file) = (du(&root), du(&root.join("b/c")));
    let sizes: Vec<i64> = all.iter().map(|info| info.size).collect();
    assert_eq!(sizes, [whole, 0, 0, whole, whole, file]);
    assert_eq!(all[1].name, "/no/such/place");
    assert!(all[1].error.contains("No such file"), "{}", all[1].error);
    assert!(!all[2].error.is_empty());
    assert!(names(&all).iter().all(|name| *name == "."));
    assert_eq!(all[4].name, text(&root), "a link at the root is followed");
}

#[tokio::test]
async fn a_negative_depth_is_refused() {
    let node = TestNode::start();
    let request = DiskUsageRequest {
        recursion_depth: -1,
        ..of(Path::new("/"))
    };
    let status = usage(&node, request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_request_without_paths_is_refused() {
    let node = TestNode::start();
    let status = usage(&node, DiskUsageRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("paths"), "{status}");
}

/// Well above the limit of parallel counts.
const MAX_COUNTS: usize = 10_000;

#[tokio::test]
async fn an_abandoned_count_ends_at_once() {
    let node = TestNode::start();
    let channel = node.connect().await;
    let mut counts = Vec::new();
    // Much to count, and nothing to tell before the end.
    let total = DiskUsageRequest {
        recursion_depth: 1,
        ..of(Path::new("/"))
    };
    let refused = loop {
        let mut machine = MachineServiceClient::new(channel.clone());
        match machine.disk_usage(total.clone()).await {
            Ok(stream) => counts.push(stream),
            Err(status) => break status,
        }
        assert!(counts.len() < MAX_COUNTS, "parallel counts have no limit");
    };
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    drop(counts);
    let root = tree(&node);
    soon("a place", async {
        while let Err(status) = usage(&node, of(&root)).await {
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        }
    })
    .await;
}

#[test]
fn du_does_what_its_name_says() {
    let node = TestNode::start();
    let root = tree(&node);
    let path = root.display().to_string();
    let whole = du(&root);
    let summary = node.cli().run(["du", "-sb", &path]).ok();
    assert_eq!(summary.trim(), format!("{whole}  {path}"));
    let human = node.cli().run(["du", "-sh", &path]).ok();
    assert!(human.contains("KiB  "), "{human}");
    let below = node.cli().run(["du", "-d", "1", &path]).ok();
    assert_eq!(below.lines().count(), 3, "{below}");
    let large = node.cli().run(["du", "-a", "-t", "200K", &path]).ok();
    assert_eq!(large.lines().count(), 3, "{large}");
    let small = node.cli().run(["du", "--threshold", "-8K", &path]).ok();
    assert_eq!(small.lines().count(), 1, "{small}");
    let json = node.cli().run(["du", "-s", "-o", "json", &path]).json();
    assert_eq!(json["size"], whole);
    assert_eq!(json["relativeName"], ".");

    let said = node.cli().run(["du", "-s", "/no/such", &path]);
    assert!(said.stdout.contains(&path), "{}", said.stdout);
    assert!(said.failed(1).contains("/no/such"));
    node.cli().run(["du", "-t", "much", &path]).failed(2);
    node.cli().run(["du", "-d", "-1", &path]).failed(2);
    assert!(node.cli().run(["du", "--help"]).ok().contains("Examples"));
}

#[tokio::test]
async fn too_many_or_endless_paths_are_refused() {
    let node = TestNode::start();
    for paths in [vec![String::new(); 4097], vec!["x".repeat(1 << 20)]] {
        let request = DiskUsageRequest {
            paths,
            ..DiskUsageRequest::default()
        };
        let status = usage(&node, request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().len() < 1000, "{status}");
    }
}
