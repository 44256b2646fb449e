//! `Copy` and `mainstay cp` of everything a file can have, compared with real `tar`.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use mainstay_testkit::{TestNode, binary, require};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

/// Nobody in particular.
const OTHER: u32 = 65534;
const ACL: &[u8] = b"system.posix_acl_access";
const CAPABILITY: &[u8] = b"security.capability";

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn owner(path: &Path, uid: u32, gid: u32) {
    std::os::unix::fs::lchown(path, Some(uid), Some(gid)).unwrap();
}

fn modified(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn set_xattr(path: &Path, name: &[u8], value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

fn make(path: &Path, kind: FileType, major: u32, minor: u32) {
    let device = rustix::fs::makedev(major, minor);
    rustix::fs::mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, device).unwrap();
}

/// An ACL in the kernel's form: the owner, UID 7, the group, the mask, and others.
fn acl() -> Vec<u8> {
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in [
        (1_u16, 6_u16, u32::MAX),
        (2, 4, 7),
        (4, 4, u32::MAX),
        (0x10, 4, u32::MAX),
        (0x20, 0, u32::MAX),
    ] {
        acl.extend(tag.to_le_bytes());
        acl.extend(bits.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

/// `cap_net_bind_service=ep` in the kernel's form.
fn capability() -> Vec<u8> {
    [0x0200_0001_u32, 1 << 10, 0, 0, 0]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect()
}

/// A tree with everything an archive can hold that its owner can also unpack.
fn tree(node: &TestNode) -> PathBuf {
    let root = node.scratch().join("rich");
    std::fs::create_dir_all(root.join("dir/deeper")).unwrap();
    std::fs::write(root.join("dir/deeper/file"), "content").unwrap();
    std::fs::write(root.join("dir/with-acl"), "acl").unwrap();
    set_xattr(&root.join("dir/with-acl"), ACL, &acl());
    std::fs::write(root.join("dir/with-xattrs"), "xattrs").unwrap();
    set_xattr(
        &root.join("dir/with-xattrs"),
        b"user.lines",
        b"two\nlines\0=",
    );
    set_xattr(&root.join("dir/deeper"), b"user.of-a-directory", b"yes");
    std::fs::write(root.join("first-name"), "linked").unwrap();
    std::fs::hard_link(root.join("first-name"), root.join("dir/second-name")).unwrap();
    std::fs::hard_link(root.join("first-name"), root.join("third-name")).unwrap();
    symlink("nowhere", root.join("symlink")).unwrap();
    std::fs::hard_link(root.join("symlink"), root.join("symlink-again")).unwrap();
    make(&root.join("fifo"), FileType::Fifo, 0, 0);
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.set_len(4 << 20).unwrap();
    sparse.write_all_at(b"in the middle", 1 << 20).unwrap();
    sparse.write_all_at(b"and later", 3 << 20).unwrap();
    let hole = File::create(root.join("only-a-hole")).unwrap();
    hole.set_len(1 << 40).unwrap();
    let long = "n".repeat(200);
    std::fs::write(root.join("dir").join(&long), "long name").unwrap();
    symlink(&long, root.join("dir/to-long-name")).unwrap();
    std::fs::write(root.join(OsStr::from_bytes(b"bytes\xff\xfe")), "bytes").unwrap();
    std::fs::write(root.join("before-1970"), "old").unwrap();
    modified(&root.join("before-1970"), -2, 500_000_000);
    modified(&root.join("symlink"), -86_400, 0);
    modified(&root.join("fifo"), 1_000_000_000, 123_456_789);
    mode(&root.join("dir/deeper"), 0o1755);
    modified(&root.join("dir/deeper"), 1_234_567_890, 987_654_321);
    modified(&root.join("dir"), -1, 1);
    root
}

/// Adds what only root can unpack.
fn add_privileged(root: &Path) {
    let program = root.join("program");
    std::fs::write(&program, "program").unwrap();
    owner(&program, 12_345, 3_000_000);
    mode(&program, 0o6755);
    let capable = root.join("capable");
    std::fs::write(&capable, "capable").unwrap();
    set_xattr(&capable, CAPABILITY, &capability());
    owner(&root.join("dir/deeper"), 4_000_000_000, 54_321);
    mode(&root.join("dir/deeper"), 0o3750);
    modified(&root.join("dir/deeper"), 1_234_567_890, 987_654_321);
    owner(&root.join("symlink"), 7, 8);
    modified(&root.join("symlink"), -86_400, 0);
    make(&root.join("null"), FileType::CharacterDevice, 1, 3);
    make(&root.join("block"), FileType::BlockDevice, 4000, 1_000_000);
    set_xattr(root, b"user.of-the-root", b"yes");
    owner(root, 5, 6);
    mode(root, 0o1751);
    modified(root, -3, 250_000_000);
}

/// Everything that is known of the entries of a tree, but the root itself: by name, in order.
fn facts(root: &Path, with_owners: bool) -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    let mut todo = vec![root.to_owned()];
    let mut first_names = Vec::<(u64, PathBuf)>::new();
    while let Some(dir) = todo.pop() {
        let mut entries: Vec<PathBuf> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        entries.sort();
        for path in entries {
            let about = std::fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().to_owned();
            let linked = match first_names.iter().find(|(inode, _)| *inode == about.ino()) {
                Some((_, first)) => first.clone(),
                None => {
                    first_names.push((about.ino(), name.clone()));
                    name.clone()
                }
            };
            let (content, holes) = if about.is_file() {
                // What is long is a hole, but for its beginning.
                let mut start = vec![0; usize::try_from(about.len().min(4 << 20)).unwrap()];
                let file = File::open(&path).unwrap();
                file.read_exact_at(&mut start, 0).unwrap();
                let sum = start.iter().fold(0_u64, |sum, byte| {
                    sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
                });
                (sum, about.blocks() * 512 < about.len())
            } else {
                (0, false)
            };
            let size = if about.is_dir() { 0 } else { about.len() };
            let owner = with_owners.then_some((about.uid(), about.gid()));
            let links = if about.is_dir() { 0 } else { about.nlink() };
            let target = std::fs::read_link(&path).ok();
            all.push((
                name,
                format!(
                    "mode {:o} owner {owner:?} mtime {}.{:09} size {size} {content:x} holes {holes} \
                     links {links} to {linked:?} device {} target {target:?} xattrs {:?}",
                    about.mode(),
                    about.mtime(),
                    about.mtime_nsec(),
                    about.rdev(),
                    xattrs(&path),
                ),
            ));
            if about.is_dir() {
                todo.push(path);
            }
        }
    }
    all.sort();
    all
}

fn xattrs(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut list = vec![0; 4096];
    let length = rustix::fs::llistxattr(path, &mut list[..]).unwrap();
    let mut all: Vec<(String, Vec<u8>)> = list[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = vec![0; 4096];
            let name = CString::new(name).unwrap();
            let length = rustix::fs::lgetxattr(path, &name, &mut value[..]).unwrap();
            value.truncate(length);
            (name.into_string().unwrap(), value)
        })
        .collect();
    all.sort();
    all
}

#[track_caller]
fn assert_same(expected: &Path, copy: &Path, with_owners: bool) {
    let (expected, copy) = (facts(expected, with_owners), facts(copy, with_owners));
    let names = |all: &[(PathBuf, String)]| -> Vec<PathBuf> {
        all.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&expected), names(&copy));
    for (expected, copy) in expected.iter().zip(&copy) {
        assert_eq!(expected, copy);
    }
}

#[test]
fn tar_unpacks_everything_a_file_has() {
    require!(Root);
    let node = TestNode::start();
    let root = tree(&node);
    add_privileged(&root);
    let archive = node.scratch().join("rich.tar.gz");
    let source = root.display().to_string();
    node.cli().run(["cp", &source, "rich.tar.gz"]).ok();
    let out = node.scratch().join("out");
    std::fs::create_dir(&out).unwrap();
    let output = Command::new("tar")
        .args([
            "--xattrs",
            "--xattrs-include=*",
            "--acls",
            "--same-owner",
            "--warning=no-timestamp",
            "-xzpf",
        ])
        .arg(&archive)
        .arg("-C")
        .arg(&out)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(said, "");
    assert_same(&root, &out, true);
}

#[test]
fn root_unpacks_everything_a_file_has() {
    require!(Root);
    let node = TestNode::start();
    let root = tree(&node);
    add_privileged(&root);
    let source = root.display().to_string();
    let copied = node.cli().run(["cp", &source, "out"]);
    assert_eq!((copied.code, copied.stderr.as_str()), (0, ""));
    assert_same(&root, &node.scratch().join("out"), true);
    // A directory that was created for it is like the original, too.
    let of = |path: &Path| {
        let about = std::fs::metadata(path).unwrap();
        let time = (about.mtime(), about.mtime_nsec());
        (about.mode(), about.uid(), about.gid(), time, xattrs(path))
    };
    assert_eq!(of(&root), of(&node.scratch().join("out")));
    // Over what is there, too.
    node.cli().run(["cp", &source, "out"]).ok();
    assert_same(&root, &node.scratch().join("out"), true);
}

#[test]
fn another_user_unpacks_what_it_may_and_is_told_the_rest() {
    require!(Root);
    let node = TestNode::start();
    let root = tree(&node);
    mode(node.scratch(), 0o755);
    let program = node.scratch().join("mainstay");
    std::fs::copy(binary(), &program).unwrap();
    let home = node.scratch().join("home");
    std::fs::create_dir(&home).unwrap();
    owner(&home, OTHER, OTHER);
    let config = home.join("client.yaml");
    std::fs::copy(node.state().join("client.yaml"), &config).unwrap();
    mode(&config, 0o600);
    owner(&config, OTHER, OTHER);
    let copy = |target: &str| {
        let output = Command::new(&program)
            .args(["cp", "--client-config"])
            .arg(&config)
            .arg(&root)
            .arg(target)
            .env_clear()
            .env("HOME", &home)
            .current_dir(&home)
            .uid(OTHER)
            .gid(OTHER)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said)
    };
    let (code, said) = copy("out");
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("not restored: ") && said.contains(" owners"),
        "{said}"
    );
    assert_same(&root, &home.join("out"), false);

    // A device is missing then, and a program of root's is not one of this user's.
    add_privileged(&root);
    let (code, said) = copy("again");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("not unpacked: null: "), "{said}");
    assert!(said.contains("set-user-ID"), "{said}");
    assert!(said.contains("security.capability"), "{said}");
    let about = std::fs::metadata(home.join("again/program")).unwrap();
    assert_eq!((about.mode() & 0o7777, about.uid()), (0o755, OTHER));
    assert!(home.join("again/dir/deeper").is_dir());
}

#[test]
fn a_copy_without_a_target_is_named_after_its_source() {
    let node = TestNode::start();
    let root = node.scratch().join("elsewhere/tree");
    std::fs::create_dir_all(root.join("sub")).unwrap();
    std::fs::write(root.join("sub/file"), "file").unwrap();
    std::fs::create_dir(root.join("archive.tgz")).unwrap();
    std::fs::write(root.join("archive.tgz/tree"), "tree").unwrap();
    let before: Vec<_> = std::fs::read_dir(node.scratch()).unwrap().collect();
    let path = |name: &str| root.join(name).display().to_string();
    node.cli().run(["cp", &path("")]).ok();
    let copied = |name: &str| std::fs::read(node.scratch().join(name)).unwrap();
    assert_eq!(copied("tree/sub/file"), b"file");
    node.cli().run(["cp", &path("sub/file")]).ok();
    assert_eq!(copied("file"), b"file");
    node.cli().run(["cp", &path("archive.tgz")]).ok();
    assert_eq!(copied("archive.tgz/tree"), b"tree");
    let after: Vec<_> = std::fs::read_dir(node.scratch()).unwrap().collect();
    assert_eq!(after.len(), before.len() + 3, "{after:?}");
    let said = node.cli().run(["cp", "/"]).failed(2);
    assert!(said.contains("has no name"), "{said}");
    node.cli().run(["cp", &path("none")]).failed(6);
}
