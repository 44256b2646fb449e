//! `mainstay cp` that does not come to its end.

use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Child;

use mainstay_testkit::{TestNode, WAIT_TIMEOUT, wait_for_exit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::process::{Pid, Signal, kill_process};

/// The bytes of a connection after which its client gets no more.
const STALL_AFTER: usize = 1 << 20;

/// A tree whose archive is longer than that.
fn source(node: &TestNode) -> String {
    let root = node.scratch().join("source");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("first"), "first").unwrap();
    let mut random = vec![0; 4 * STALL_AFTER];
    fastrand::Rng::with_seed(7).fill(&mut random);
    std::fs::write(root.join("large"), random).unwrap();
    root.display().to_string()
}

/// An endpoint of the node through which no copy of [`source`] comes to its end. It ends with the
/// node.
fn stalling(node: &TestNode) -> String {
    let path = node.scratch().join("stalling.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let socket = node.socket();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut server = UnixStream::connect(&socket).unwrap();
            let (mut requests, mut to_server) =
                (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut requests, &mut to_server));
            std::thread::spawn(move || {
                let mut given = 0;
                let mut buffer = [0; 8192];
                while let Ok(read) = server.read(&mut buffer)
                    && read > 0
                {
                    given += read;
                    if given < STALL_AFTER && client.write_all(&buffer[..read]).is_err() {
                        break;
                    }
                }
                let _ = client.shutdown(Shutdown::Both);
            });
        }
    });
    format!("unix:{}", path.display())
}

/// Tells when something is made in a directory.
struct Watch(OwnedFd);

impl Watch {
    fn on(dir: &Path) -> Self {
        let inotify = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&inotify, dir, inotify::WatchFlags::CREATE).unwrap();
        Self(inotify)
    }

    fn wait(self) {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let bound = Timespec {
            tv_sec: WAIT_TIMEOUT.as_secs().try_into().unwrap(),
            tv_nsec: 0,
        };
        assert_eq!(poll(&mut fds, Some(&bound)), Ok(1), "nothing was made");
        let mut space = [MaybeUninit::uninit(); 4096];
        inotify::Reader::new(&self.0, &mut space).next().unwrap();
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// How it ended, and what it said.
fn ended(mut child: Child) -> (Option<i32>, String) {
    let status = wait_for_exit(&mut child);
    let mut said = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    (status.code(), said)
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(dir).unwrap();
    let mut all: Vec<PathBuf> = all.map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

#[test]
fn an_interrupted_archive_leaves_what_was_there_before_and_nothing_else() {
    let node = TestNode::start();
    let source = source(&node);
    let endpoint = stalling(&node);
    let dir = node.scratch().join("archives");
    std::fs::create_dir(&dir).unwrap();
    let kept = dir.join("kept.tar.gz");
    std::fs::write(&kept, "from before").unwrap();
    for target in ["archives/kept.tar.gz", "archives/new.tgz"] {
        let watch = Watch::on(&dir);
        let child = node.cli().spawn(["cp", "-e", &endpoint, &source, target]);
        watch.wait();
        signal(&child, Signal::INT);
        let (code, said) = ended(child);
        assert_eq!(code, Some(130), "{said}");
        assert!(said.contains("interrupted"), "{said}");
        assert_eq!(entries(&dir), std::slice::from_ref(&kept));
        assert_eq!(std::fs::read(&kept).unwrap(), b"from before");
    }
}

#[test]
fn an_interrupted_copy_removes_the_directories_it_made() {
    let node = TestNode::start();
    let source = source(&node);
    let endpoint = stalling(&node);
    let before = entries(node.scratch());
    for (stop, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let watch = Watch::on(node.scratch());
        let child = node
            .cli()
            .spawn(["cp", "-e", &endpoint, &source, "new/deeper/still"]);
        watch.wait();
        signal(&child, stop);
        let (ended_with, said) = ended(child);
        assert_eq!(ended_with, Some(code), "{said}");
        assert_eq!(entries(node.scratch()), before);
    }
}

#[test]
fn an_interrupted_copy_leaves_a_directory_that_was_there_and_says_so() {
    let node = TestNode::start();
    let source = source(&node);
    let endpoint = stalling(&node);
    let dir = node.scratch().join("there");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("own"), "own").unwrap();
    let watch = Watch::on(&dir);
    let child = node.cli().spawn(["cp", "-e", &endpoint, &source, "there"]);
    watch.wait();
    signal(&child, Signal::INT);
    let (code, said) = ended(child);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("remain in there"), "{said}");
    assert_eq!(std::fs::read(dir.join("own")).unwrap(), b"own");
    assert!(dir.join("first").exists());
}

#[test]
fn a_copy_to_a_reader_who_does_not_read_can_be_interrupted() {
    let node = TestNode::start();
    let source = source(&node);
    let endpoint = stalling(&node);
    let mut child = node.cli().spawn(["cp", "-e", &endpoint, &source, "-"]);
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    signal(&child, Signal::INT);
    let (code, said) = ended(child);
    assert_eq!(code, Some(130), "{said}");
}

#[test]
fn a_lost_node_leaves_nothing_half_copied() {
    let mut node = TestNode::start();
    let source = source(&node);
    let endpoint = stalling(&node);
    let before = entries(node.scratch());
    let watch = Watch::on(node.scratch());
    let child = node
        .cli()
        .spawn(["cp", "-e", &endpoint, &source, "lost.tar.gz"]);
    watch.wait();
    node.kill();
    let (code, said) = ended(child);
    assert_eq!(code, Some(3), "{said}");
    assert_eq!(entries(node.scratch()), before);
}

#[test]
fn an_archive_replaces_what_a_link_leads_to() {
    let node = TestNode::start();
    let source = node.scratch().join("source");
    std::fs::write(&source, "content").unwrap();
    let real = node.scratch().join("real.tar.gz");
    std::fs::write(&real, "old").unwrap();
    std::os::unix::fs::symlink("real.tar.gz", node.scratch().join("link.tar.gz")).unwrap();
    let source = source.display().to_string();
    node.cli().run(["cp", &source, "link.tar.gz"]).ok();
    let link = node.scratch().join("link.tar.gz");
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(std::fs::read(&real).unwrap()[..2], [0x1f, 0x8b]);
}
