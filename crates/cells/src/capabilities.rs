//! Capabilities that an executable in a cell keeps.
//!
//! Root has those in the bounding set. Another user has none, unless they were requested by name.
//! A process that may create a user namespace has all of them inside it; the default seccomp
//! profile refuses that.

use std::fmt;
use std::sync::OnceLock;

use rustix::io::{self, Errno};
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities,
};
use serde::{Deserialize, Serialize};

/// The default capabilities of root in a cell.
///
/// A cell works on the host's own files, as the user it runs as; its namespaces and a minimal `/dev`
/// keep it from the rest of the machine. Therefore:
///
/// - `CHOWN`, `DAC_OVERRIDE`, `FOWNER`, `FSETID`: root's ordinary handling of files. They reach no
///   more than `SETUID` does, and without them no installer and no daemon works.
/// - `SETUID`, `SETGID`, `SETPCAP`, `SYS_CHROOT`: how daemons drop privileges.
/// - `KILL`: reaches the processes of the cell's PID namespace.
/// - `NET_BIND_SERVICE`: ports below 1024 of the cell's network namespace.
/// - `AUDIT_WRITE`: logins fail without it where auditing is on. The kernel adds the writer to each
///   entry.
///
/// Container runtimes keep up to three more, which have to be requested here:
///
/// - `MKNOD`: a node in any directory of the host would open the host's disks.
/// - `SETFCAP`: file capabilities would be set on files of the host, beyond those of the cell, and
///   outlive it.
/// - `NET_RAW`: forges packets of the neighbours on a bridge; `ping` works without.
pub const DEFAULT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::AUDIT_WRITE);

/// Capabilities requested in addition to the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    all: bool,
    named: CapabilitySet,
}

/// The capabilities of an executable, computed before the fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The bounding set.
    kept: u64,
    /// The ambient set: what a user other than root has.
    ambient: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum CapabilityError {
    #[error("unknown capability {shown:?}; write names as CAP_NET_ADMIN or net_admin, or ALL")]
    Unknown { shown: String },
    #[error("this node lacks {missing}; leave it out, or start the node with it")]
    NotHeld { missing: String },
    #[error("cannot read the capabilities of this node")]
    Unreadable(#[source] Errno),
}

impl Capabilities {
    pub const NONE: Self = Self {
        all: false,
        named: CapabilitySet::empty(),
    };

    /// Parses names in any case, with or without `CAP_`, and `ALL`.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, CapabilityError> {
        let mut asked = Self::NONE;
        for name in names {
            if name.eq_ignore_ascii_case("ALL") {
                asked.all = true;
            } else {
                asked.named |= by_name(name)?;
            }
        }
        Ok(asked)
    }

    /// Computes what this process can grant. A capability of the default set or of `ALL` that it
    /// lacks is left out; one that was requested by name is an error.
    pub fn grant(self) -> Result<Granted, CapabilityError> {
        static HELD: OnceLock<io::Result<CapabilitySet>> = OnceLock::new();
        // A running daemon neither gains nor drops any.
        let held = HELD.get_or_init(held);
        self.grant_from((*held).map_err(CapabilityError::Unreadable)?)
    }

    fn grant_from(self, held: CapabilitySet) -> Result<Granted, CapabilityError> {
        let missing = self.named.difference(held);
        if !missing.is_empty() {
            let missing = Names(missing).to_string();
            return Err(CapabilityError::NotHeld { missing });
        }
        let asked = if self.all { held } else { self.named };
        Ok(Granted {
            kept: DEFAULT.union(asked).intersection(held).bits(),
            ambient: asked.bits(),
        })
    }
}

impl Granted {
    /// Drops all other capabilities of the calling process, irrevocably, before its exec.
    ///
    /// Calls `change_user` in between: earlier it would drop capabilities that are needed here,
    /// later it would lack those it needs. Allocates nothing, so a forked process may call it.
    pub fn drop_to(self, change_user: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let kept = CapabilitySet::from_bits_retain(self.kept);
        for capability in each_possible().filter(|one| !kept.contains(*one)) {
            match remove_capability_from_bounding_set(capability) {
                // Beyond the last capability of this kernel.
                Err(Errno::INVAL) => break,
                removed => removed?,
            }
        }
        set_keep_capabilities(true)?;
        change_user()?;

        // Root regains the bounding set at exec; inheritable capabilities would only let file
        // capabilities add to it. Another user has the ambient set after exec, which must be
        // inheritable.
        let ambient = CapabilitySet::from_bits_retain(self.ambient);
        let (own, inheritable) = if geteuid().is_root() {
            (kept, CapabilitySet::empty())
        } else {
            (ambient, ambient)
        };
        set_capabilities(
            None,
            CapabilitySets {
                effective: own,
                permitted: own,
                inheritable,
            },
        )?;
        clear_ambient_capability_set()?;
        for capability in each_known().filter(|one| inheritable.contains(*one)) {
            configure_capability_in_ambient_set(capability, true)?;
        }
        set_keep_capabilities(false)
    }
}

/// The capabilities that this process can pass on.
fn held() -> io::Result<CapabilitySet> {
    let mut held = capabilities(None)?.permitted;
    for capability in each_known() {
        if !capability_is_in_bounding_set(capability)? {
            held.remove(capability);
        }
    }
    Ok(held)
}

/// All capability bits, named here or not.
fn each_possible() -> impl Iterator<Item = CapabilitySet> {
    (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number))
}

/// The capabilities of the running kernel.
fn each_known() -> impl Iterator<Item = CapabilitySet> {
    each_possible()
        .take_while(|capability| capability_is_in_bounding_set(*capability) != Err(Errno::INVAL))
}

fn by_name(name: &str) -> Result<CapabilitySet, CapabilityError> {
    const MAX_NAME_BYTES: usize = 40;
    let unknown = || CapabilityError::Unknown {
        shown: name.chars().take(MAX_NAME_BYTES).collect(),
    };
    if name.len() > MAX_NAME_BYTES {
        return Err(unknown());
    }
    let upper = name.to_ascii_uppercase();
    let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
    CapabilitySet::from_name(bare).ok_or_else(unknown)
}

struct Names(CapabilitySet);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, _)) in self.0.iter_names().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}CAP_{name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn asked(names: &[&str]) -> Capabilities {
        Capabilities::parse(names.iter().copied()).unwrap()
    }

    #[test]
    fn names_parse_in_any_case_with_or_without_prefix() {
        for name in ["CAP_NET_ADMIN", "net_admin", "Cap_Net_Admin"] {
            assert_eq!(asked(&[name]).named, CapabilitySet::NET_ADMIN);
        }
        assert!(asked(&["chown", "all"]).all);
        assert_eq!(asked(&[]), Capabilities::NONE);
    }

    #[test]
    fn an_unknown_capability_is_named_in_the_error() {
        let long = "x".repeat(1 << 20);
        for bad in [
            "",
            "_",
            "CAP_",
            "CAP_ALL",
            "CAP_CAP_CHOWN",
            "NET ADMIN",
            "chown ",
            "CHOWN|KILL",
            "0x1",
            &long,
        ] {
            let error = Capabilities::parse(["CHOWN", bad]).unwrap_err();
            let CapabilityError::Unknown { shown } = &error else {
                panic!("{bad:?}: {error}");
            };
            assert!(bad.starts_with(shown) && error.to_string().len() < 200);
        }
    }

    #[test]
    fn only_capabilities_requested_by_name_must_be_held() {
        let held = CapabilitySet::CHOWN | CapabilitySet::NET_ADMIN;
        let granted = Capabilities::NONE.grant_from(held).unwrap();
        assert_eq!(
            (granted.kept, granted.ambient),
            (CapabilitySet::CHOWN.bits(), 0)
        );
        let granted = asked(&["net_admin"]).grant_from(held).unwrap();
        assert_eq!(granted.kept, held.bits());
        assert_eq!(granted.ambient, CapabilitySet::NET_ADMIN.bits());
        let granted = asked(&["ALL"]).grant_from(held).unwrap();
        assert_eq!((granted.kept, granted.ambient), (held.bits(), held.bits()));

        let error = asked(&["ALL", "sys_time", "bpf"])
            .grant_from(held)
            .unwrap_err();
        assert!(
            error.to_string().contains("CAP_SYS_TIME, CAP_BPF"),
            "{error}"
        );
    }

    #[test]
    fn the_default_set_reaches_neither_devices_nor_the_kernel() {
        for never in [
            "MKNOD",
            "SETFCAP",
            "NET_RAW",
            "SYS_ADMIN",
            "SYS_MODULE",
            "SYS_PTRACE",
        ] {
            assert!(!DEFAULT.intersects(by_name(never).unwrap()), "{never}");
        }
        assert_eq!(DEFAULT.bits().count_ones(), 11);
    }

    proptest! {
        #[test]
        fn parsing_any_text_does_not_panic(text in ".{0,60}") {
            let _ = Capabilities::parse([text.as_str()]);
        }
    }
}
