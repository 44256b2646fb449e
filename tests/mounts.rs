//! `Mounts` and `mainstay df`.

use std::path::Path;

use mainstay_api::machine::MountStat;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_testkit::{FrozenDisk, MountNamespace, TestNode, require};

#[tokio::test]
async fn mounts_come_in_the_kernel_s_order_with_bytes() {
    let node = TestNode::start();
    let mut machine = MachineServiceClient::new(node.connect().await);
    let answer = machine.mounts(()).await.unwrap().into_inner();
    assert_eq!(answer.messages.len(), 1);
    let stats = &answer.messages[0].stats;
    let kernel = std::fs::read_to_string(format!("/proc/{}/mounts", node.pid())).unwrap();
    let kernel: Vec<&str> = kernel
        .lines()
        .map(|line| line.split(' ').nth(1).unwrap())
        .filter(|t| !t.contains('\\'))
        .collect();
    let told: Vec<&str> = stats.iter().map(|stat| stat.mounted_on.as_str()).collect();
    assert!(kernel.iter().all(|target| told.contains(target)));
    let in_both = |all: &[&str], other: &[&str]| -> Vec<String> {
        let both = all.iter().filter(|target| other.contains(target));
        both.map(|target| (*target).to_owned()).collect()
    };
    assert_eq!(in_both(&told, &kernel), in_both(&kernel, &told));
    let root = stats.iter().find(|stat| stat.mounted_on == "/").unwrap();
    let statvfs = rustix::fs::statvfs("/").unwrap();
    assert_eq!(root.size, statvfs.f_blocks * statvfs.f_frsize);
    assert!(root.available <= root.size);
}

#[test]
fn the_command_hides_what_has_no_size_unless_asked() {
    let node = TestNode::start();
    let table = node.cli().run(["df"]).ok();
    assert!(table.lines().any(|line| line.ends_with(" /")), "{table}");
    assert!(
        !table.lines().any(|line| line.ends_with(" /proc")),
        "{table}"
    );
    let all = node.cli().run(["mounts", "--all"]).ok();
    assert!(all.lines().any(|line| line.ends_with(" /proc")), "{all}");
}

/// The columns of real `df` in a mount namespace, a row for each file system.
fn df(namespace: MountNamespace, args: &[&str]) -> Vec<Vec<String>> {
    let output = namespace
        .command(Path::new("df"))
        .args([
            "--block-size=1",
            "--output=source,size,used,avail,pcent,itotal,iused,iavail,ipcent,target",
        ])
        .args(args)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let rows = text.lines().skip(1);
    rows.map(|row| row.split_whitespace().map(str::to_owned).collect())
        .collect()
}

async fn stats(node: &TestNode) -> Vec<MountStat> {
    let mut machine = MachineServiceClient::new(node.connect().await);
    let answer = machine.mounts(()).await.unwrap().into_inner();
    answer.messages.into_iter().next().unwrap().stats
}

#[tokio::test]
async fn usage_is_that_of_df() {
    require!(Root, LoopDisk);
    let scratch = tempfile::tempdir().unwrap();
    // A file system of which a part is reserved for root, mounted twice, and nobody else's.
    let mount_point = scratch.path().join("disk");
    let disk = FrozenDisk::mount(&mount_point, 64);
    std::fs::write(disk.path().join("file"), vec![7; 10 << 20]).unwrap();
    std::fs::create_dir(disk.path().join("part")).unwrap();
    let bound = scratch.path().join("a-longer-name-for-a-part");
    std::fs::create_dir(&bound).unwrap();
    let mut bind = disk.namespace().command(Path::new("mount"));
    bind.arg("--bind").arg(mount_point.join("part")).arg(&bound);
    assert!(bind.status().unwrap().success());
    let synced = std::process::Command::new("sync")
        .arg("-f")
        .arg(disk.path())
        .status();
    assert!(synced.unwrap().success());
    let node = TestNode::builder().inside(disk.namespace()).start();

    let target = mount_point.to_str().unwrap();
    let expected = df(disk.namespace(), &[target]).remove(0);
    let all = stats(&node).await;
    let on = |path: &Path| {
        let path = path.to_str().unwrap();
        all.iter().find(|stat| stat.mounted_on == path).unwrap()
    };
    let stat = on(&mount_point);
    assert!(stat.available < stat.free, "nothing is reserved: {stat:?}");
    let (used, inodes_used) = (stat.size - stat.free, stat.inodes - stat.inodes_free);
    let numbers = [
        stat.size,
        used,
        stat.available,
        stat.inodes,
        inodes_used,
        stat.inodes_free,
    ];
    let theirs: Vec<u64> = [1, 2, 3, 5, 6, 7]
        .iter()
        .map(|column| expected[*column].parse().unwrap())
        .collect();
    assert_eq!(numbers.as_slice(), theirs);
    assert_eq!((stat.r#type.as_str(), stat.hidden), ("ext4", false));
    assert!(on(&bound).hidden, "a bind mount");

    // The percentages of the command, and what it leaves out.
    let words = |table: &str| -> Vec<String> {
        let row = table.lines().find(|line| line.ends_with(target)).unwrap();
        row.split_whitespace().map(str::to_owned).rev().collect()
    };
    let table = node.cli().run(["df"]).ok();
    assert_eq!(words(&table)[1], expected[4], "{table}");
    let inodes = words(&node.cli().run(["df", "-i"]).ok());
    let theirs: Vec<&String> = expected[5..=8].iter().rev().collect();
    assert_eq!(inodes[1..=4].iter().collect::<Vec<_>>(), theirs);
    assert!(!table.contains("a-longer-name"), "{table}");
    let everything = node.cli().run(["df", "--all"]).ok();
    assert!(everything.contains("a-longer-name"), "{everything}");
}

#[tokio::test]
async fn the_mounts_that_df_hides_are_hidden() {
    require!(Root, LoopDisk);
    let scratch = tempfile::tempdir().unwrap();
    let disk = FrozenDisk::mount(&scratch.path().join("disk"), 16);
    let node = TestNode::builder().inside(disk.namespace()).start();
    // Mounts of the machine may come and go meanwhile: the same must be seen before and after.
    for _ in 0..100 {
        let targets = || -> Vec<String> {
            let rows = df(disk.namespace(), &[]);
            let mut targets: Vec<String> =
                rows.into_iter().filter_map(|mut row| row.pop()).collect();
            targets.sort();
            targets
        };
        let before = targets();
        let mut shown: Vec<String> = stats(&node)
            .await
            .into_iter()
            .filter(|stat| !stat.hidden)
            .map(|stat| stat.mounted_on)
            .collect();
        shown.sort();
        if targets() == before {
            assert_eq!(shown, before);
            return;
        }
    }
    panic!("the mounts change all the time");
}
