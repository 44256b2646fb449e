//! Which of root's powers an executable in a cell keeps.
//!
//! For root they are what the bounding set leaves. Another user has none of them, unless they were
//! asked for by name. Whoever may make a user namespace has all of them in it, over what is in it;
//! the default profile of system calls refuses that.

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

/// What root in a cell has without asking.
///
/// A cell works on the host's own files, as the user it runs as; what keeps it from the rest of the
/// machine are its namespaces and a small `/dev` of its own. So:
///
/// - `CHOWN`, `DAC_OVERRIDE`, `FOWNER`, `FSETID`: root's ordinary handling of files. They reach no
///   more than `SETUID` does, and without them no installer and no daemon works.
/// - `SETUID`, `SETGID`, `SETPCAP`, `SYS_CHROOT`: how daemons give up power.
/// - `KILL`: reaches what the cell can see; that is itself, unless it shares the host's processes.
/// - `NET_BIND_SERVICE`: the low ports of the network that the cell is in.
/// - `AUDIT_WRITE`: logins fail without it where auditing is on. The kernel adds to each entry who
///   wrote it.
///
/// Container runtimes keep up to three more, which have to be asked for here:
///
/// - `MKNOD`: a node in any directory of the host would open the host's disks.
/// - `SETFCAP`: what installers put on files of their container would here be on files of the host,
///   with capabilities that the cell itself does not have, and stay when the cell is gone.
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

/// What is asked for beyond the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    all: bool,
    named: CapabilitySet,
}

/// What an executable gets, worked out before it is born.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The most that it and everything it starts will ever have.
    kept: u64,
    /// What it has even when it is not root.
    ambient: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum CapabilityError {
    #[error("{shown:?} is no capability; write names as CAP_NET_ADMIN or net_admin, or ALL")]
    Unknown { shown: String },
    #[error("this node does not have {missing} itself; leave it out, or start the node with it")]
    NotHeld { missing: String },
    #[error("cannot read the capabilities of this node")]
    Unreadable(#[source] Errno),
}

impl Capabilities {
    pub const NONE_MORE: Self = Self {
        all: false,
        named: CapabilitySet::empty(),
    };

    /// Reads names in any case, with or without `CAP_`, and `ALL`.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, CapabilityError> {
        let mut asked = Self::NONE_MORE;
        for name in names {
            if name.eq_ignore_ascii_case("ALL") {
                asked.all = true;
            } else {
                asked.named |= by_name(name)?;
            }
        }
        Ok(asked)
    }

    /// What of it this process can give. One of the default or of all that it does not have, or
    /// that the kernel does not know, is left out; one that was asked for by name is an error.
    pub fn grant(self) -> Result<Granted, CapabilityError> {
        static HELD: OnceLock<io::Result<CapabilitySet>> = OnceLock::new();
        // A daemon does not gain any, and has no reason to drop one.
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
    /// Leaves the process that is about to execute something with no more than this, for good.
    ///
    /// `change_user` is called in between: before, it would take away what is needed here; after,
    /// it could not be done. Nothing is allocated, so a forked process may call it.
    pub fn drop_to(self, change_user: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let kept = CapabilitySet::from_bits_retain(self.kept);
        for capability in each_possible().filter(|one| !kept.contains(*one)) {
            match remove_capability_from_bounding_set(capability) {
                // Beyond the last one that the kernel knows.
                Err(Errno::INVAL) => break,
                removed => removed?,
            }
        }
        set_keep_capabilities(true)?;
        change_user()?;

        // Root gets back at exec what the bounding set leaves, and needs no more; whatever was
        // inheritable would only let files with capabilities add to it. Anybody else has after
        // exec what is ambient, and only what is inheritable can be.
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

/// What this process could hand on.
fn held() -> io::Result<CapabilitySet> {
    let mut held = capabilities(None)?.permitted;
    for capability in each_known() {
        if !capability_is_in_bounding_set(capability)? {
            held.remove(capability);
        }
    }
    Ok(held)
}

/// Also those that have no name here.
fn each_possible() -> impl Iterator<Item = CapabilitySet> {
    (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number))
}

/// The capabilities of the running kernel.
fn each_known() -> impl Iterator<Item = CapabilitySet> {
    each_possible()
        .take_while(|capability| capability_is_in_bounding_set(*capability) != Err(Errno::INVAL))
}

fn by_name(name: &str) -> Result<CapabilitySet, CapabilityError> {
    const LONGEST: usize = 40;
    let unknown = || CapabilityError::Unknown {
        shown: name.chars().take(LONGEST).collect(),
    };
    if name.len() > LONGEST {
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
    fn names_are_read_in_any_case_with_or_without_their_prefix() {
        for name in ["CAP_NET_ADMIN", "net_admin", "Cap_Net_Admin"] {
            assert_eq!(asked(&[name]).named, CapabilitySet::NET_ADMIN);
        }
        assert!(asked(&["chown", "all"]).all);
        assert_eq!(asked(&[]), Capabilities::NONE_MORE);
    }

    #[test]
    fn what_is_no_capability_is_named() {
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
    fn only_what_was_asked_for_by_name_has_to_be_there() {
        let held = CapabilitySet::CHOWN | CapabilitySet::NET_ADMIN;
        let granted = Capabilities::NONE_MORE.grant_from(held).unwrap();
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
    fn the_default_opens_no_device_and_no_kernel() {
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
        fn no_text_makes_it_panic(text in ".{0,60}") {
            let _ = Capabilities::parse([text.as_str()]);
        }
    }
}
