//! End-to-end tests: each starts a real node in a directory of its own and talks to it through the
//! API, over mTLS or the unix socket, and the command line.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    unreachable_pub,
    missing_debug_implementations
)]

mod archives;
mod authorizer;
mod cells;
mod cgroups;
mod cli_output;
mod command_line;
mod compatibility;
mod completion;
mod configuration;
mod containers;
mod copies;
mod daemon;
mod disk_usage;
mod disks;
mod dmesg;
mod documentation;
mod events;
mod fanout;
mod file_names;
mod files;
mod grpcurl;
#[cfg(target_arch = "x86_64")]
mod guest;
mod health;
mod hostile;
mod identity;
mod lifecycle;
mod logs;
mod memory;
mod mounts;
mod netstat;
mod network;
mod packages;
mod pcap;
mod pods;
mod processes;
mod readings;
mod reflection;
mod schedule;
mod services;
mod support;
mod swept_node;
mod talos;
mod terminal;
mod time;
mod top;
mod upgrade;
mod version;
