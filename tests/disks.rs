//! `Disks` and `mainstay disks`, against sysfs and a loop device of the test.

use std::path::Path;

use mainstay_api::storage::Disk;
use mainstay_api::storage::storage_service_client::StorageServiceClient;
use mainstay_testkit::{FrozenDisk, TestFleet, TestNode, require, soon, to_nodes};

const MIB: u64 = 16;

async fn disks(node: &TestNode) -> Vec<Disk> {
    let mut client = StorageServiceClient::new(node.connect_locally().await);
    let answer = soon("the disks", client.disks(())).await.unwrap();
    let mut messages = answer.into_inner().messages;
    assert_eq!(messages.len(), 1);
    assert!(messages[0].metadata.is_none());
    messages.remove(0).disks
}

fn sysfs(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

#[tokio::test]
async fn disks_and_partitions_are_those_of_sysfs() {
    require!(BlockDevice);
    let node = TestNode::start();
    let found = disks(&node).await;
    let mut names = Vec::new();
    for entry in std::fs::read_dir("/sys/block").unwrap() {
        let dir = entry.unwrap().path();
        let name = dir.file_name().unwrap().to_str().unwrap().to_owned();
        let sectors: u64 = sysfs(&dir.join("size")).parse().unwrap_or(0);
        // Loop devices of other tests come and go.
        if sectors == 0 || name.starts_with("loop") {
            continue;
        }
        let device = format!("/dev/{}", name.replace('!', "/"));
        let disk = found.iter().find(|disk| disk.device_name == device);
        let disk = disk.unwrap_or_else(|| panic!("{device} is missing"));
        assert_eq!(disk.size, sectors * 512);
        assert_eq!(disk.device_number, sysfs(&dir.join("dev")));
        assert_eq!(disk.readonly, sysfs(&dir.join("ro")) == "1");
        let rotational = sysfs(&dir.join("queue/rotational")) == "1";
        assert_eq!(disk.rotational, rotational);
        let entries = std::fs::read_dir(&dir).unwrap();
        let partitions = entries
            .filter(|entry| entry.as_ref().unwrap().path().join("partition").exists())
            .count();
        assert_eq!(disk.partitions.len(), partitions);
        names.push(device);
    }
    for disk in &found {
        let known = names.contains(&disk.device_name) || disk.kind == "loop";
        assert!(known, "{disk:?}");
    }
}

#[tokio::test]
async fn a_loop_device_has_its_file_its_size_and_its_mount_point() {
    require!(LoopDisk);
    let builder = TestNode::builder();
    let mount_point = builder.scratch().join("mnt");
    let disk = FrozenDisk::mount(&mount_point, MIB);
    let node = builder.inside(disk.namespace()).start();
    let mounted = mount_point.to_str().unwrap().to_owned();
    let found = disks(&node).await;
    let ours = found
        .iter()
        .find(|disk| disk.mounted_on.contains(&mounted))
        .unwrap_or_else(|| panic!("no disk is mounted on {mounted}: {found:?}"));
    assert_eq!(ours.size, MIB << 20);
    assert_eq!((ours.kind.as_str(), ours.transport.as_str()), ("loop", ""));
    assert!(ours.backing.ends_with("/image"), "{ours:?}");
    assert!(!ours.system_disk);

    let table = node.cli().run(["disks"]).ok();
    let line = table.lines().find(|line| line.contains(&mounted)).unwrap();
    assert!(line.contains("16 MiB") && line.contains("loop"), "{line}");
    let physical = node.cli().run(["disks", "--physical"]).ok();
    assert!(!physical.contains(&mounted), "{physical}");
    let json = node.cli().run(["disks", "-o", "json"]).json();
    let all = json[0]["disks"].as_array().unwrap();
    let ours = all
        .iter()
        .find(|disk| disk["mountedOn"][0] == mounted.as_str());
    assert_eq!(ours.unwrap()["size"], MIB << 20);
    assert!(
        node.cli()
            .run(["disks", "-o", "yaml"])
            .ok()
            .contains("deviceName:")
    );
}

#[tokio::test]
async fn every_node_answers_with_its_disks() {
    let fleet = TestFleet::start(2);
    let mut client = StorageServiceClient::new(fleet.nodes[0].connect().await);
    let reply = client.disks(to_nodes((), fleet.names())).await.unwrap();
    let messages = reply.into_inner().messages;
    assert_eq!(messages.len(), 2);
    for message in messages {
        assert!(fleet.names().contains(&message.metadata.unwrap().hostname));
    }
}
