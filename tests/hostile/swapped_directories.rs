//! A user of the machine who renames what is being copied, to bring what only root can read into the
//! archive, or to make the node open what it should not.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{CopyRequest, ListRequest};
use mainstay_testkit::{TestNode, require, soon};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, renameat_with};

use super::assert_unharmed;

/// Nobody in particular.
const OTHER: u32 = 65534;
/// The archives of an attack. One takes long enough to be interrupted by many swaps: most contained
/// the secret when files were opened by their path.
const ARCHIVES: usize = 8;
const FILES: usize = 500;
const SECRET: &str = "only root may read this";

/// Swaps two entries until it is dropped.
struct Swapping {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Swapping {
    fn start(pairs: Vec<(PathBuf, PathBuf)>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                for (one, other) in &pairs {
                    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
                }
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Swapping {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let swapped = thread.join();
            assert!(
                std::thread::panicking() || swapped.is_ok(),
                "nothing was swapped"
            );
        }
    }
}

/// Directories of root and of a user, with files of the same names, a link of the user's to that of
/// root, and a FIFO.
fn scene(dir: &Path) -> PathBuf {
    let (secrets, user) = (dir.join("secrets"), dir.join("user"));
    let data = user.join("data");
    std::fs::create_dir_all(&secrets).unwrap();
    std::fs::create_dir_all(&data).unwrap();
    std::fs::set_permissions(&secrets, PermissionsExt::from_mode(0o700)).unwrap();
    for number in 0..FILES {
        std::fs::write(secrets.join(format!("file-{number}")), SECRET).unwrap();
        std::fs::write(data.join(format!("file-{number}")), "harmless").unwrap();
    }
    symlink(&secrets, user.join("link")).unwrap();
    std::fs::write(user.join("plain"), "plain").unwrap();
    let (kind, mode) = (FileType::Fifo, Mode::RUSR | Mode::WUSR);
    rustix::fs::mknodat(CWD, user.join("fifo"), kind, mode, 0).unwrap();
    symlink(secrets.join("file-0"), user.join("link-to-file")).unwrap();
    std::fs::write(user.join("file"), "harmless").unwrap();
    for path in [&user, &data] {
        std::os::unix::fs::chown(path, Some(OTHER), Some(OTHER)).unwrap();
    }
    user
}

async fn archive(node: &TestNode, path: &Path) -> Vec<u8> {
    let mut machine = MachineServiceClient::new(node.connect().await);
    let request = CopyRequest {
        root_path: path.display().to_string(),
    };
    let mut stream = machine.copy(request).await.unwrap().into_inner();
    let mut archive = Vec::new();
    while let Some(data) = soon("the archive", stream.message()).await.unwrap() {
        archive.extend_from_slice(&data.bytes);
    }
    archive
}

/// The contents of all files of an archive.
fn contents(archive: &Path) -> String {
    let output = Command::new("tar")
        .arg("-xzOf")
        .arg(archive)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn no_archive_contains_what_only_root_can_read() {
    require!(Root);
    let node = TestNode::start();
    let user = scene(node.scratch());
    let swapping = Swapping::start(vec![
        (user.join("data"), user.join("link")),
        (user.join("plain"), user.join("fifo")),
        (user.join("file"), user.join("link-to-file")),
    ]);
    let path = node.scratch().join("archive.tar.gz");
    for _ in 0..ARCHIVES {
        std::fs::write(&path, archive(&node, &user).await).unwrap();
        let contents = contents(&path);
        assert!(
            !contents.contains(SECRET),
            "the archive contains the secret"
        );
    }
    drop(swapping);
    // What is the user's is copied.
    std::fs::write(&path, archive(&node, &user).await).unwrap();
    let harmless = contents(&path).matches("harmless").count();
    assert_eq!(harmless, FILES + 1);
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn no_listing_reads_attributes_of_another_file() {
    require!(Root);
    let node = TestNode::start();
    let user = scene(node.scratch());
    let flags = rustix::fs::XattrFlags::empty();
    for number in 0..FILES {
        let secret = node.scratch().join(format!("secrets/file-{number}"));
        rustix::fs::setxattr(&secret, "user.secret", SECRET.as_bytes(), flags).unwrap();
    }
    let _swapping = Swapping::start(vec![(user.join("data"), user.join("link"))]);
    let mut machine = MachineServiceClient::new(node.connect().await);
    for _ in 0..ARCHIVES {
        let request = ListRequest {
            root: user.display().to_string(),
            recurse: true,
            report_xattrs: true,
            ..ListRequest::default()
        };
        let mut stream = machine.list(request).await.unwrap().into_inner();
        while let Some(info) = soon("an entry", stream.message()).await.unwrap() {
            let attributes: Vec<&str> = info.xattrs.iter().map(|x| x.name.as_str()).collect();
            assert!(!attributes.contains(&"user.secret"), "{}", info.name);
        }
    }
}
