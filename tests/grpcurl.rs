//! A gRPC client that is not ours, with nothing but the files of `client.yaml`.

use std::path::PathBuf;
use std::process::Command;

use mainstay_testkit::TestNode;

/// Installed by `make test` beside the build.
fn grpcurl() -> PathBuf {
    let path = mainstay_testkit::target_dir().join("tools/bin/grpcurl");
    assert!(
        path.exists(),
        "{} is missing; scripts/setup-test installs it",
        path.display()
    );
    path
}

fn call(node: &TestNode, args: &[&str]) -> String {
    let admin = node.admin();
    let (crt, key) = admin.identity.unwrap();
    let dir = node.scratch();
    for (name, text) in [
        ("ca", admin.ca.as_str()),
        ("crt", crt.as_str()),
        ("key", key.expose()),
    ] {
        std::fs::write(dir.join(name), text).unwrap();
    }
    let output = Command::new(grpcurl())
        .current_dir(dir)
        .args([
            "-cacert",
            "ca",
            "-cert",
            "crt",
            "-key",
            "key",
            "-max-time",
            "20",
        ])
        .arg(node.listen().to_string())
        .args(args)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn it_lists_every_service_by_reflection_and_calls_version() {
    let node = TestNode::start();
    let services = call(&node, &["list"]);
    for service in crate::reflection::services() {
        assert!(
            services.lines().any(|line| line == service),
            "{service} not in\n{services}"
        );
    }
    let answer = call(&node, &["machine.MachineService/Version"]);
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let tag = &answer["messages"][0]["version"]["tag"];
    assert_eq!(tag, concat!("v", env!("CARGO_PKG_VERSION")));
}

#[test]
fn it_describes_a_message_with_the_numbers_of_the_contract() {
    let node = TestNode::start();
    let described = call(&node, &["describe", "v1alpha.KeyValue"]);
    assert!(described.contains("string Key = 1;"), "{described}");
}
