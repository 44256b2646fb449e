//! An executable that ends while no daemon is there to see it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use mainstay_api::observe::observe_client::ObserveClient;
use mainstay_api::observe::{GetSubProcessStreamRequest, LogChannelType};
use mainstay_api::runtime::cell_service_client::CellServiceClient;
use mainstay_api::runtime::{
    AllocateCellRequest, Cell, Executable, ExecutableState, FreeCellRequest, ListCellsRequest,
    StartCellRequest,
};
use mainstay_testkit::{soon, wait_until_exited};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tonic::transport::Channel;

const CELL: &str = "witness";

pub(super) struct Witness {
    /// It waits for this to close.
    cue: File,
    handle: OwnedFd,
    pid: i32,
    code: u8,
    runs: u64,
}

impl Witness {
    /// Started for the `runs`th time.
    pub(super) async fn start(channel: Channel, scratch: &Path, runs: u64) -> Self {
        let mut client = CellServiceClient::new(channel);
        let fifo = scratch.join("cue");
        if runs == 1 {
            mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            let cell = Some(Cell {
                name: CELL.to_owned(),
                ..Cell::default()
            });
            client.allocate(AllocateCellRequest { cell }).await.unwrap();
        }
        let code = u8::try_from(40 + runs % 100).unwrap();
        let executable = Some(Executable {
            name: "waits".to_owned(),
            command: format!("sh -c 'read word < {}; exit {code}'", fifo.display()),
            cell_name: CELL.to_owned(),
            ..Executable::default()
        });
        let started = client.start(StartCellRequest { executable }).await.unwrap();
        let pid = started.into_inner().pid;
        Self {
            cue: soon("the witness", open(fifo)).await,
            handle: pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap(),
            pid,
            code,
            runs,
        }
    }

    /// Ends it. To be called while the daemon is dead; what comes of it tells how it ended.
    pub(super) fn end(self) -> Ended {
        drop(self.cue);
        assert!(wait_until_exited(&self.handle), "the witness does not end");
        Ended {
            pid: self.pid,
            code: self.code,
            runs: self.runs,
        }
    }
}

/// Opens once somebody reads at the other end.
async fn open(fifo: PathBuf) -> File {
    let opened = tokio::task::spawn_blocking(|| File::options().write(true).open(fifo));
    opened.await.unwrap().unwrap()
}

pub(super) struct Ended {
    pid: i32,
    code: u8,
    runs: u64,
}

impl Ended {
    pub(super) async fn assert_known(self, channel: Channel) {
        // Ends when it is known that the process has.
        let request = GetSubProcessStreamRequest {
            channel_type: LogChannelType::ChannelStdout.into(),
            process_id: self.pid.into(),
            ..GetSubProcessStreamRequest::default()
        };
        let mut observe = ObserveClient::new(channel.clone());
        let output = observe.get_sub_process_stream(request).await.unwrap();
        let said = soon("its end", output.into_inner().message()).await;
        assert_eq!(said.unwrap(), None);
        let cell_name = CELL.to_owned();
        let mut client = CellServiceClient::new(channel);
        let listed = client.list(ListCellsRequest { cell_name }).await.unwrap();
        let [cell] = listed.into_inner().cells.try_into().unwrap();
        let [executable] = cell.executables.try_into().unwrap();
        assert_eq!(
            executable.state(),
            ExecutableState::Exited,
            "{executable:?}"
        );
        assert_eq!(executable.exit_code, i32::from(self.code), "{executable:?}");
        assert_eq!(executable.runs, self.runs, "{executable:?}");
    }
}

pub(super) async fn free(channel: Channel) {
    let cell_name = CELL.to_owned();
    let mut client = CellServiceClient::new(channel);
    client.free(FreeCellRequest { cell_name }).await.unwrap();
}
