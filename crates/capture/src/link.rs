//! Link types: the first bytes of a captured packet.

use std::fmt;

/// From linux/if_arp.h.
const ARPHRD_RAWIP: u16 = 519;

/// The link-layer header of packets, by its number in capture files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    /// An Ethernet header.
    Ethernet,
    /// None: packets start with their IP header.
    Raw,
}

impl LinkType {
    /// Returns the link type of an interface by its `ARPHRD_*` number.
    pub(crate) fn of_hardware(hardware: u16) -> Option<Self> {
        match hardware {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Some(Self::Ethernet),
            libc::ARPHRD_NONE
            | ARPHRD_RAWIP
            | libc::ARPHRD_TUNNEL
            | libc::ARPHRD_TUNNEL6
            | libc::ARPHRD_SIT => Some(Self::Raw),
            _ => None,
        }
    }

    /// Returns its `LINKTYPE_*` number.
    pub fn number(self) -> u16 {
        match self {
            Self::Ethernet => 1,
            Self::Raw => 101,
        }
    }

    /// Returns the link type of a `LINKTYPE_*` number.
    pub fn from_number(number: u16) -> Option<Self> {
        [Self::Ethernet, Self::Raw]
            .into_iter()
            .find(|link| link.number() == number)
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "ethernet",
            Self::Raw => "raw",
        })
    }
}
