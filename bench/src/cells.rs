//! A node for cells in a cgroup of its own, and the calls that cells take.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use mainstay_api::runtime::CellStatus;
use mainstay_testkit::{Sweeper, TestNode, TlsClient, procfs};
use tonic::Streaming;

use crate::benches::Setup;

/// The name of the one executable in each cell.
const EXECUTABLE: &str = "program";

pub struct CellNode {
    pub node: TestNode,
    tls: TlsClient,
    // Declared last: cells outlive their node.
    sweeper: Sweeper,
}

impl CellNode {
    pub fn start(setup: &Setup) -> Result<Self> {
        Self::of_program(&setup.binary)
    }

    /// A node that runs this build.
    pub fn of_program(program: &Path) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "cells need root; run this as root"
        );
        let sweeper = Sweeper::start("bench");
        let node = TestNode::builder()
            .program(program)
            .config(&format!("[cells]\ncgroup = {:?}\n", sweeper.cgroup()))
            .start();
        Ok(Self {
            tls: node.admin().tls_client()?,
            node,
            sweeper,
        })
    }

    /// CPU time of the node, of the process that forks its shims, and of its cells so far, in
    /// seconds. One cell must be there all the time, whose shim is given.
    pub fn cpu_seconds(&self, shim: u32) -> Result<f64> {
        let zygote = procfs::parent(shim)?;
        let cells = procfs::cgroup_cpu_seconds(self.sweeper.cgroup())?;
        Ok(procfs::cpu_seconds(self.node.pid())? + procfs::cpu_seconds(zygote)? + cells)
    }

    /// A directory beside the node's state, on the same file system.
    pub fn scratch(&self) -> &Path {
        self.node.scratch()
    }

    pub fn endpoint(&self) -> CellEndpoint {
        CellEndpoint {
            tls: self.tls.clone(),
            address: self.node.listen(),
        }
    }
}

/// Address and credentials of the node, for measurements on another runtime.
#[derive(Clone, Debug)]
pub struct CellEndpoint {
    tls: TlsClient,
    address: SocketAddr,
}

impl CellEndpoint {
    /// A connection that has been used.
    pub async fn connect(&self) -> Result<CellClient> {
        let channel = self.tls.connect(self.address).await?;
        let mut client = CellClient(mainstay_testkit::CellClient::new(&channel));
        client.0.machine.version(()).await?;
        Ok(client)
    }
}

/// A connection for cells with one executable each.
pub struct CellClient(mainstay_testkit::CellClient);

impl CellClient {
    /// Allocates a cell with namespaces of its own of every kind and the default limits.
    pub async fn allocate(&mut self, name: &str) -> Result<()> {
        Ok(self.0.allocate(name).await?)
    }

    /// Starts the executable and returns its PID.
    pub async fn start(&mut self, cell: &str, command: &str) -> Result<i32> {
        Ok(self.0.start(cell, EXECUTABLE, command).await?)
    }

    /// Waits until the process has exited and all its output was sent, of which there must be
    /// none.
    pub async fn until_end(&mut self, pid: i32) -> Result<()> {
        let line = self.0.output(pid, 0).await?.message().await?;
        ensure!(
            line.is_none(),
            "a program that prints nothing printed {line:?}"
        );
        Ok(())
    }

    /// Stops the executable; of one that has exited, waits for the record of that.
    pub async fn stop(&mut self, cell: &str) -> Result<()> {
        Ok(self.0.stop(cell, EXECUTABLE).await?)
    }

    pub async fn free(&mut self, cell: &str) -> Result<()> {
        Ok(self.0.free(cell).await?)
    }

    pub async fn list(&mut self) -> Result<Vec<CellStatus>> {
        Ok(self.0.list().await?)
    }

    /// Streams everything the executable has printed.
    pub async fn output(&mut self, cell: &str) -> Result<Streaming<mainstay_api::common::Data>> {
        let stream = self.0.log(&format!("{cell}/{EXECUTABLE}"), false).await;
        stream.context("cannot read the log")
    }
}
