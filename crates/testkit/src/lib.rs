//! Real nodes, fleets, guests, containerd, networks and disks for tests and benchmarks.
//!
//! Everything here is the real thing on this machine's kernel, below names of its own, and is gone
//! when it is dropped; [`Sweeper`] removes what would outlive a test that is killed. No wait is
//! unbounded ([`WAIT_TIMEOUT`]), and none polls where the kernel can notify.
//!
//! A test names what it needs from the machine with [`require!`] and fails where that is missing.
//! A failed set-up panics with the reason and what installs the missing part: neither a test nor a
//! benchmark can go on without.
//!
//! Never a dependency of anything that ships, and never aware of the insides of an engine.
//!
//! Features keep it cheap for small crates: `node` adds nodes and clients, `containerd` a
//! containerd, `cri` pods in it, `terminal` a pseudoterminal.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    missing_debug_implementations,
    reason = "test code: a failed step ends the test with its reason"
)]

mod artifacts;
#[cfg(feature = "node")]
mod cells;
mod cli;
#[cfg(feature = "node")]
mod client;
#[cfg(feature = "containerd")]
mod containerd;
mod debian;
#[cfg(feature = "node")]
mod fleet;
mod freshness;
mod frozen_disk;
#[cfg(target_arch = "x86_64")]
mod guest;
#[cfg(feature = "containerd")]
pub mod images;
mod mounts;
mod namespace_holder;
mod network;
#[cfg(feature = "node")]
mod node;
#[cfg(feature = "node")]
mod node_builder;
pub mod procfs;
mod requirement;
mod server_process;
mod sweeper;
#[cfg(feature = "terminal")]
mod terminal;
mod wait;

pub use artifacts::{binary, older_binary, target_dir};
#[cfg(feature = "node")]
pub use cells::CellClient;
pub use cli::{Cli, CliOutput};
#[cfg(feature = "node")]
pub use client::{Credentials, TlsClient, connect_over, connect_tls, connect_unix};
#[cfg(feature = "cri")]
pub use containerd::Pod;
#[cfg(feature = "containerd")]
pub use containerd::TestContainerd;
pub use debian::Debian;
#[cfg(feature = "node")]
pub use fleet::{ANY_TARGET, TestFleet, dead_address, to_nodes};
pub use frozen_disk::{Frozen, FrozenDisk};
#[cfg(target_arch = "x86_64")]
pub use guest::{Guest, tests_of};
pub use mounts::{MountNamespace, PrivateMounts};
pub use namespace_holder::NamespaceHolder;
pub use network::{NetworkNamespace, TestNetwork};
#[cfg(feature = "node")]
pub use node::TestNode;
#[cfg(feature = "node")]
pub use node_builder::TestNodeBuilder;
pub use requirement::{Requirement, SKIP_VARIABLE};
pub use server_process::ServerProcess;
pub use sweeper::Sweeper;
#[cfg(feature = "terminal")]
pub use terminal::OnTerminal;
pub use wait::{WAIT_TIMEOUT, soon, wait_for_exit, wait_until_exited};
