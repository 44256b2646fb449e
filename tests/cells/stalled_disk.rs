//! A stalled disk delays the calls that write to it, and no others.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mainstay_api::runtime::{
    AllocateCellRequest, Cell, ExecutableState, FreeCellRequest, ListCellsRequest, StopCellRequest,
};
use mainstay_testkit::{TestNode, soon};
use rustix::process::{Signal, kill_process};
use tonic::{Code, Request};

use super::cell_node::CellNode;

/// A call that waits for nothing is answered in milliseconds; this allows for a loaded machine.
const PROMPT: Duration = Duration::from_secs(2);
/// The deadline of the call that hangs.
const DEADLINE: Duration = Duration::from_secs(3);

/// An ext4 file system on a loop device that can be frozen. Thawed and unmounted on drop, also
/// when the test panics.
struct FreezableDisk {
    mount_point: tempfile::TempDir,
    _image: tempfile::NamedTempFile,
}

impl FreezableDisk {
    /// Mounts the file system away from the state, and puts a link to it at `path`: other tests
    /// look for mounts below the state of a node.
    fn mount(path: &Path) -> Self {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(32 << 20).unwrap();
        run(Command::new("mkfs.ext4").arg("-q").arg(image.path()));
        let mount_point = tempfile::Builder::new()
            .prefix("stalled-")
            .tempdir()
            .unwrap();
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(image.path())
            .arg(mount_point.path()));
        let disk = Self {
            mount_point,
            _image: image,
        };
        fs::remove_dir_all(path).unwrap();
        symlink(disk.path(), path).unwrap();
        disk
    }

    fn path(&self) -> &Path {
        self.mount_point.path()
    }

    fn freeze(&self) {
        run(Command::new("fsfreeze").arg("-f").arg(self.path()));
    }

    fn thaw(&self) {
        run(Command::new("fsfreeze").arg("-u").arg(self.path()));
    }
}

impl Drop for FreezableDisk {
    fn drop(&mut self) {
        // Fails if it is not frozen.
        let _ = Command::new("fsfreeze").arg("-u").arg(self.path()).output();
        let _ = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

fn allocate(name: &str) -> AllocateCellRequest {
    AllocateCellRequest {
        cell: Some(Cell {
            name: name.to_owned(),
            ..Cell::default()
        }),
    }
}

/// Fails if the call takes longer than one that waits for no disk.
async fn promptly<T>(what: &str, call: impl Future<Output = Result<T, tonic::Status>>) -> T {
    let answered = tokio::time::timeout(PROMPT, call).await;
    answered
        .unwrap_or_else(|_| panic!("{what} waits for the stalled disk"))
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_disk_delays_only_the_calls_that_write_to_it() {
    let mut disk = None;
    let test = CellNode::start("stalled");
    let mount = |node: &TestNode| disk = Some(FreezableDisk::mount(&node.state().join("cells")));
    let test = test.crash(mount, TestNode::restart);
    let disk = disk.unwrap();
    test.allocate("web", &[]).await;
    test.start_in("web", "server", "sleep 1000").await;
    // Ends, and leaves nothing to write: the calls below are about it.
    let done = test.start_in("web", "done", "true").await;
    test.output(done, 0).await;

    test.allocate("orphaned", &[]).await;
    let orphan = test.start_in("orphaned", "x", "sleep 1000").await;
    let shim = test.shim_pid("orphaned").await;

    disk.freeze();
    let mut hanging = test.cells().await;
    let hung = tokio::spawn(async move {
        let mut request = Request::new(allocate("new"));
        request.set_timeout(DEADLINE);
        hanging.allocate(request).await
    });
    // The daemon writes that its executable is lost, and hangs in that too.
    kill_process(shim, Signal::KILL).unwrap();
    let mut cells = test.cells().await;
    // Until the deadline: other calls are answered while both writes hang.
    while !hung.is_finished() {
        let listed = promptly("List", cells.list(ListCellsRequest::default())).await;
        let listed = listed.into_inner().cells.into_iter();
        let names: Vec<String> = listed.map(|status| status.cell.unwrap().name).collect();
        assert_eq!(
            names,
            ["orphaned", "web"],
            "a cell is listed once it is allocated"
        );
        // A Stop that finds nothing to stop writes nothing.
        let stop = StopCellRequest {
            cell_name: "web".to_owned(),
            executable_name: "done".to_owned(),
            ..StopCellRequest::default()
        };
        promptly("Stop", cells.stop(stop)).await;
    }
    let status = hung.await.unwrap().unwrap_err();
    assert!(
        matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled),
        "{status}"
    );

    disk.thaw();
    // The cancelled call has completed or left nothing: either way the name is usable.
    let again = soon("the second Allocate", cells.allocate(allocate("new"))).await;
    if let Err(status) = again {
        assert_eq!(status.code(), Code::AlreadyExists, "{status}");
    }
    test.output(orphan, 0).await;
    let lost = test.executable("orphaned", "x").await;
    assert_eq!(lost.state(), ExecutableState::Lost);
    for name in ["new", "orphaned", "web"] {
        let free = FreeCellRequest {
            cell_name: name.to_owned(),
        };
        soon("Free", cells.free(free)).await.unwrap();
    }
    for directory in ["cells", "executables", "logs"] {
        let entries = fs::read_dir(disk.path().join(directory)).unwrap();
        assert_eq!(entries.count(), 0, "{directory}");
    }
    test.finish().await;
}
