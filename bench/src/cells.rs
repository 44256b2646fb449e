//! A node for cells, with control groups of its own, and the calls that cells take.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use mainstay_api::machine::LogsRequest;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::observe::GetSubProcessStreamRequest;
use mainstay_api::observe::observe_client::ObserveClient;
use mainstay_api::runtime::cell_service_client::CellServiceClient;
use mainstay_api::runtime::{
    AllocateCellRequest, Cell, CellStatus, Executable, FreeCellRequest, ListCellsRequest,
    StartCellRequest, StopCellRequest,
};
use tonic::Streaming;
use tonic::transport::Channel;

use crate::client::{Client, Credentials};
use crate::server::Server;
use crate::sweeper::Sweeper;

/// What every executable is called: there is one in a cell.
const EXECUTABLE: &str = "program";

pub struct CellNode {
    pub node: Server,
    credentials: Credentials,
    // Declared last: what the node leaves behind goes when the node is gone.
    sweeper: Sweeper,
}

impl CellNode {
    pub async fn start(binary: &Path) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "cells are made by root; run this as root"
        );
        let sweeper = Sweeper::start()?;
        let config = sweeper.dir().join("config.toml");
        std::fs::write(
            &config,
            format!("[cells]\ncgroup = {:?}\n", sweeper.cgroup()),
        )?;
        let state = sweeper.dir().join("state");
        let node = Server::node_as(binary, &state, &config).await?;
        Ok(Self {
            node,
            credentials: Credentials::of(&state)?,
            sweeper,
        })
    }

    /// A directory beside the node's state, on the same file system.
    pub fn scratch(&self) -> &Path {
        self.sweeper.dir()
    }

    pub fn door(&self) -> Door {
        Door {
            credentials: self.credentials.clone(),
            address: self.node.address(),
        }
    }
}

/// Where and as whom to connect: for whoever brings their own runtime.
#[derive(Clone, Debug)]
pub struct Door {
    credentials: Credentials,
    address: SocketAddr,
}

impl Door {
    /// A connection that has been used.
    pub async fn open(&self) -> Result<CellClient> {
        let channel = self.credentials.channel(self.address).await?;
        let mut client = CellClient {
            cells: CellServiceClient::new(channel.clone()).max_decoding_message_size(MOST_BYTES),
            observe: ObserveClient::new(channel.clone()),
            machine: MachineServiceClient::new(channel),
        };
        client.machine.version(()).await?;
        Ok(client)
    }
}

/// As large as a node sends messages.
const MOST_BYTES: usize = 32 << 20;

pub struct CellClient {
    cells: CellServiceClient<Channel>,
    observe: ObserveClient<Channel>,
    machine: Client,
}

impl CellClient {
    /// Isolated in every way there is: shares nothing, and has the default limits.
    pub async fn allocate(&mut self, name: &str) -> Result<()> {
        let cell = Cell {
            name: name.to_owned(),
            ..Cell::default()
        };
        let request = AllocateCellRequest { cell: Some(cell) };
        self.cells.allocate(request).await?;
        Ok(())
    }

    /// Tells the process id.
    pub async fn start(&mut self, cell: &str, command: &str) -> Result<i32> {
        let executable = Executable {
            name: EXECUTABLE.to_owned(),
            command: command.to_owned(),
            cell_name: cell.to_owned(),
            ..Executable::default()
        };
        let request = StartCellRequest {
            executable: Some(executable),
        };
        Ok(self.cells.start(request).await?.into_inner().pid)
    }

    /// Until the process has ended and all its output was sent, of which there must be none.
    pub async fn until_end(&mut self, pid: i32) -> Result<()> {
        let request = GetSubProcessStreamRequest {
            process_id: pid.into(),
            ..GetSubProcessStreamRequest::default()
        };
        let stream = self.observe.get_sub_process_stream(request).await?;
        let line = stream.into_inner().message().await?;
        ensure!(
            line.is_none(),
            "a program that prints nothing printed {line:?}"
        );
        Ok(())
    }

    /// Also of what has ended already: then it only waits for the record of that.
    pub async fn stop(&mut self, cell: &str) -> Result<()> {
        let request = StopCellRequest {
            cell_name: cell.to_owned(),
            executable_name: EXECUTABLE.to_owned(),
            ..StopCellRequest::default()
        };
        self.cells.stop(request).await?;
        Ok(())
    }

    pub async fn free(&mut self, cell: &str) -> Result<()> {
        let request = FreeCellRequest {
            cell_name: cell.to_owned(),
        };
        self.cells.free(request).await?;
        Ok(())
    }

    pub async fn list(&mut self) -> Result<Vec<CellStatus>> {
        let request = ListCellsRequest::default();
        Ok(self.cells.list(request).await?.into_inner().cells)
    }

    /// All that the cell's executable has printed.
    pub async fn output(&mut self, cell: &str) -> Result<Streaming<mainstay_api::common::Data>> {
        let request = LogsRequest {
            namespace: "mainstay".to_owned(),
            id: format!("{cell}/{EXECUTABLE}"),
            tail_lines: -1,
            ..LogsRequest::default()
        };
        let stream = self.machine.logs(request).await;
        Ok(stream.context("the log cannot be read")?.into_inner())
    }
}
