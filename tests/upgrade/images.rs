//! Images that are refused before anything is changed.

use std::fs;

use mainstay_api::mainstay::UploadImageRequest;
use mainstay_api::mainstay::node_service_client::NodeServiceClient;
use mainstay_slots::SigningKey;
use mainstay_testkit::{PrivateMounts, TestNode, require};
use tokio_stream::iter;
use tonic::Code;

use super::builds::{NEXT, TestImage, version};
use super::upgrade_node::{assert_runs, end_of, slots, start, start_upgrade};

async fn refusal(node: &TestNode, image: &str) -> (Code, String) {
    let status = start_upgrade(node, image).await.unwrap_err();
    assert!(slots(node).await.slots.is_empty(), "nothing is changed");
    (status.code(), status.message().to_owned())
}

#[tokio::test]
async fn requests_that_name_no_image() {
    let node = TestNode::start();
    let long = "/".repeat(5000);
    for (image, code, text) in [
        ("", Code::InvalidArgument, "an upgrade needs an image"),
        ("/none", Code::NotFound, "upgrade image /none not found"),
        ("/dev/zero", Code::InvalidArgument, "neither an OCI layout"),
        ("/etc", Code::InvalidArgument, "has no oci-layout"),
        (
            "/etc/hostname",
            Code::InvalidArgument,
            "no readable tar archive",
        ),
        (
            "ghcr.io/mainstay/node:v1",
            Code::Unimplemented,
            "need the image store",
        ),
        (&long, Code::InvalidArgument, "too long"),
        ("/a\0b", Code::InvalidArgument, "NUL byte"),
    ] {
        let found = refusal(&node, image).await;
        assert!(
            found.0 == code && found.1.contains(text),
            "{image:.20}: {found:?}"
        );
    }
    let mode = start(&node, "/none", |request| request.reboot_mode = 7).await;
    assert_eq!(mode.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn truncated_and_corrupt_images() {
    let node = TestNode::start();
    let image = TestImage::broken("exit");
    let whole = fs::read(&image.path).unwrap();
    fs::write(&image.path, &whole[..whole.len() / 2]).unwrap();
    let (code, text) = refusal(&node, image.path()).await;
    assert!(
        code == Code::InvalidArgument && text.contains("truncated"),
        "{code}: {text}"
    );
    let mut corrupt = whole.clone();
    corrupt[whole.len() / 2] ^= 1;
    fs::write(&image.path, corrupt).unwrap();
    let (code, text) = refusal(&node, image.path()).await;
    assert!(
        code == Code::InvalidArgument && text.contains("has digest"),
        "{code}: {text}"
    );
}

#[tokio::test]
async fn an_image_of_another_architecture() {
    let node = TestNode::start();
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("foreign");
    let mut program = fs::read(env!("CARGO_BIN_EXE_broken-mainstay")).unwrap();
    // The machine in the ELF header: arm64 on amd64 and the other way round.
    program[18] = if program[18] == 62 { 183 } else { 62 };
    fs::write(&path, program).unwrap();
    let (code, text) = refusal(&node, TestImage::of(&path).path()).await;
    assert!(
        code == Code::InvalidArgument && text.contains("is for linux/"),
        "{code}: {text}"
    );
}

#[tokio::test]
async fn a_version_with_a_newer_state_format() {
    let node = TestNode::start();
    let image = TestImage::of(&version("7.0.0", 2));
    for force in [false, true] {
        let started = start(&node, image.path(), |request| request.force = force).await;
        let status = started.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(
            status
                .message()
                .contains("version 7.0.0 uses state format 2"),
            "{status}"
        );
    }
    assert!(slots(&node).await.slots.is_empty());
}

#[tokio::test]
async fn signatures_are_required_once_keys_are_configured() {
    let keys = tempfile::TempDir::new().unwrap();
    let generate = |name: &str| {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let public = keys.path().join(name);
        fs::write(&public, pair.public_key_pem()).unwrap();
        (SigningKey::from_pem(&pair.serialize_pem()).unwrap(), public)
    };
    let (trusted, trusted_file) = generate("trusted.pub");
    let (other, _) = generate("other.pub");
    let config = format!("[upgrade]\nkeys = [{trusted_file:?}]\n");
    let node = TestNode::builder().config(&config).start();
    let program = version(NEXT, 1);
    let (code, text) = refusal(&node, TestImage::of(&program).path()).await;
    assert!(
        code == Code::PermissionDenied && text.contains("it has no signature"),
        "{text}"
    );
    let image = TestImage::signed(&program, Some(&other));
    let (code, text) = refusal(&node, image.path()).await;
    assert!(
        code == Code::PermissionDenied && text.contains("does not verify"),
        "{text}"
    );
    let image = TestImage::signed(&program, Some(&trusted));
    let actor = start_upgrade(&node, image.path()).await.unwrap();
    end_of(&node, &actor).await.unwrap();
    assert_runs(&node, NEXT, "B").await;

    let config = "[upgrade]\nkeys = ['/none.pub']\n";
    let (stderr, _) = TestNode::builder().config(config).refused();
    assert!(
        stderr.contains("cannot read upgrade key /none.pub"),
        "{stderr}"
    );
}

#[tokio::test]
async fn uploads_are_bounded_and_removed() {
    let node = TestNode::start();
    let mut client = NodeServiceClient::new(node.connect_locally().await);
    let part = |data: Vec<u8>| UploadImageRequest { data: data.into() };
    let empty = client.upload_image(iter([])).await.unwrap_err();
    assert_eq!(empty.code(), Code::InvalidArgument, "{empty}");
    let large = client
        .upload_image(iter([part(vec![0; 5 << 20])]))
        .await
        .unwrap_err();
    assert_eq!(large.code(), Code::InvalidArgument, "{large}");
    let incoming = node.state().join("slots/incoming");
    assert_eq!(fs::read_dir(&incoming).unwrap().count(), 0);
    for content in 0..4 {
        let uploaded = client.upload_image(iter([part(vec![content; 10])])).await;
        let uploaded = uploaded.unwrap().into_inner().messages.remove(0);
        assert_eq!(uploaded.size_bytes, 10);
        assert_eq!(fs::read(&uploaded.path).unwrap(), vec![content; 10]);
    }
    assert_eq!(fs::read_dir(&incoming).unwrap().count(), 2);
    let node = node.restart();
    // With the first upgrade that is asked for, not before: nothing is kept for it.
    refusal(&node, "/none").await;
}

/// A disk with room for the node and no room for another version.
#[tokio::test]
async fn a_full_disk() {
    require!(Root);
    let builder = TestNode::builder();
    let mounts = PrivateMounts::tmpfs(&builder.state(), 20 << 10);
    let node = builder.inside(mounts.namespace()).start();
    let image = TestImage::next();
    let status = start_upgrade(&node, image.path()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("No space left"), "{status}");
    assert!(slots(&node).await.slots.is_empty());
    node.connect().await;
}
