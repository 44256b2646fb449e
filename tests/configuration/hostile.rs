//! Configurations that nobody should send, and files that cannot be written.

use mainstay_api::machine::ApplyConfigurationRequest;
use mainstay_api::machine::apply_configuration_request::Mode;
use mainstay_testkit::{PrivateMounts, TestNode, require};
use tonic::Code;

use super::{apply, file, in_force, request, send};

const OLD: &str = "stop_timeout = '20s'\n";

#[tokio::test]
async fn every_error_of_a_file_is_named_with_its_line() {
    let node = TestNode::builder().config(OLD).start();
    let text =
        "stop_timeout = '1s'\nlisten = 'nowhere'\n[log]\nlevle = 'info'\n[cells]\nusers = 0\n";
    let refused = apply(&node, text, Mode::Auto).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    for words in [
        "line 2, ",
        "line 4, column 1: unknown field `levle`",
        "line 6, ",
    ] {
        assert!(refused.message().contains(words), "{refused}");
    }
    assert_eq!(file(&node), OLD);
    assert!(
        in_force(&node)
            .await
            .toml
            .contains("stop_timeout = \"20s\"")
    );
}

#[tokio::test]
async fn bad_requests_change_nothing_and_say_why() {
    let node = TestNode::builder().config(OLD).start();
    let with_timeout = |mode, seconds, nanos| ApplyConfigurationRequest {
        try_mode_timeout: Some(prost_types::Duration { seconds, nanos }),
        ..request("# new\n", mode)
    };
    let with_data = |data: Vec<u8>| ApplyConfigurationRequest {
        data: data.into(),
        ..request("", Mode::Auto)
    };
    let unknown = ApplyConfigurationRequest {
        mode: 9,
        ..request("# new\n", Mode::Auto)
    };
    let nested = format!("a = {}{}", "[".repeat(100_000), "]".repeat(100_000));
    let keys: String = (0..50_000)
        .map(|number| format!("k{number} = 1\n"))
        .collect();
    for (request, code, words) in [
        (request("", Mode::Auto), Code::InvalidArgument, "empty"),
        (
            with_data(vec![b'#'; (1 << 20) + 1]),
            Code::InvalidArgument,
            "1048577 bytes",
        ),
        (
            with_data(b"# \xff\n".to_vec()),
            Code::InvalidArgument,
            "byte 2",
        ),
        (
            with_data(nested.into_bytes()),
            Code::InvalidArgument,
            "line 1",
        ),
        (
            with_data(keys.into_bytes()),
            Code::InvalidArgument,
            "; and ",
        ),
        (
            with_data(b"a = '\0'\n".to_vec()),
            Code::InvalidArgument,
            "line 1",
        ),
        (unknown, Code::InvalidArgument, "mode 9"),
        (
            with_timeout(Mode::Try, 0, 0),
            Code::InvalidArgument,
            "between 1s",
        ),
        (
            with_timeout(Mode::Try, -5, 0),
            Code::InvalidArgument,
            "negative",
        ),
        (
            with_timeout(Mode::Try, i64::MAX, 0),
            Code::InvalidArgument,
            "between 1s",
        ),
        (
            with_timeout(Mode::Auto, 5, 0),
            Code::InvalidArgument,
            "mode TRY",
        ),
    ] {
        let refused = send(&node, request).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(words), "{words}: {refused}");
    }
    assert_eq!(file(&node), OLD);
    assert!(
        in_force(&node)
            .await
            .toml
            .contains("stop_timeout = \"20s\"")
    );
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_an_error_and_nothing_changes() {
    let node = TestNode::builder().config(OLD).start();
    // A directory, then a FIFO, then nothing in a directory that is gone.
    let path = node.config_file();
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let refused = apply(&node, "# new\n", Mode::Auto).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(
        refused.message().contains("not a regular file"),
        "{refused}"
    );
    std::fs::remove_dir(&path).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(fifo.unwrap().success());
    let refused = apply(&node, "# new\n", Mode::Auto).await.unwrap_err();
    assert!(
        refused.message().contains("not a regular file"),
        "{refused}"
    );
    assert!(
        in_force(&node)
            .await
            .toml
            .contains("stop_timeout = \"20s\"")
    );
}

#[tokio::test]
async fn a_read_only_directory_is_an_error_and_nothing_changes() {
    require!(Root);
    let builder = TestNode::builder();
    let etc = builder.scratch().join("etc");
    let mounts = PrivateMounts::tmpfs(&etc, 1024);
    let path = etc.join("config.toml");
    std::fs::write(mounts.seen(&path), OLD).unwrap();
    let node = builder
        .arg("--config")
        .arg(path.display().to_string())
        .inside(mounts.namespace())
        .start();
    mounts.remount_read_only(&etc);
    for dry_run in [true, false] {
        let request = ApplyConfigurationRequest {
            dry_run,
            ..request("stop_timeout = '1s'\n", Mode::Auto)
        };
        let refused = send(&node, request).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(
            refused.message().contains("read-only file system"),
            "{refused}"
        );
    }
    assert!(
        in_force(&node)
            .await
            .toml
            .contains("stop_timeout = \"20s\"")
    );
}

#[tokio::test]
async fn a_missing_directory_is_an_error_that_says_what_to_do() {
    let builder = TestNode::builder();
    let folder = builder.scratch().join("etc");
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("config.toml");
    std::fs::write(&path, OLD).unwrap();
    let config = path.display().to_string();
    let node = builder.arg("--config").arg(config).start();
    std::fs::remove_dir_all(&folder).unwrap();
    let refused = apply(&node, "# new\n", Mode::Auto).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(
        refused.message().contains("create its directory"),
        "{refused}"
    );
    // The directory is there again: a missing file is no obstacle.
    std::fs::create_dir(&folder).unwrap();
    apply(&node, "# new\n", Mode::Auto).await.unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "# new\n");
}
