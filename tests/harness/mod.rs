//! A real node in a temporary directory, started in well under a second and stopped whatever
//! happens.

mod cli;
mod client;
mod containerd;
mod fleet;
#[cfg(target_arch = "x86_64")]
mod guest;
mod images;
mod mounts;
mod network;
mod node;
mod terminal;

pub use cli::Cli;
pub use client::{Credentials, connect_over, connect_tls, connect_unix};
pub use containerd::TestContainerd;
pub use fleet::{TestFleet, dead_address, to_nodes};
#[cfg(target_arch = "x86_64")]
pub use guest::{Guest, tests_of};
pub use mounts::PrivateMounts;
pub use network::TestNetwork;
pub use node::{TestNode, binary, target_dir, wait_with_patience};
pub use terminal::OnTerminal;

use std::time::Duration;

/// No wait in a test is longer; reaching it is a failure, never a way to pass time.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Bounds a wait for something that must happen.
pub async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, wait).await {
        Ok(value) => value,
        Err(_) => panic!("waited {PATIENCE:?} in vain for {what}"),
    }
}
