//! Network interfaces and routes of this process's network namespace, by rtnetlink.

mod interfaces;
mod message;
mod netlink;
mod routes;

pub use interfaces::{Address, Interface, InterfaceCounters, interfaces};
pub use routes::{Family, NextHop, Route, protocol_name, routes};

/// Parses a dump as if the kernel had sent it; returns how many interfaces and routes it holds.
/// For fuzzing.
#[doc(hidden)]
pub fn parse_dump(bytes: &[u8]) -> usize {
    let messages: Vec<_> = message::messages(bytes).collect();
    let bodies = || messages.iter().map(|message| message.body);
    let mut found = interfaces::parse(bodies(), bodies()).len();
    for family in [Family::V4, Family::V6] {
        found += bodies()
            .filter_map(|body| routes::parse(family, body, &|index| index.to_string()))
            .count();
    }
    found
}
