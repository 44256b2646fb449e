//! The built-in seccomp profile: refuses system calls that ordinary executables do not need and
//! that reach beyond the cell.
//!
//! A deny list, so that a program built for a later kernel works. Most entries need capabilities
//! that a cell does not have by default; the list also holds where they were granted, and keeps
//! bugs in rarely used parts of the kernel out of reach.
//!
//! Allowed on purpose: `ptrace` and its relatives, which reach only processes of the cell with no
//! more privileges than the caller, and which debuggers and crash reporters need; `adjtimex`, which
//! reads the clock's state without privileges; `chroot` and `mknod`, which capabilities govern.

use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition};
use syscalls::Sysno;

use super::policy::{Policy, Rule};

const REFUSED: [&str; 47] = [
    // The kernel itself.
    "init_module",
    "finit_module",
    "delete_module",
    "kexec_load",
    "kexec_file_load",
    "reboot",
    "bpf",
    "perf_event_open",
    "syslog",
    "acct",
    "iopl",
    "ioperm",
    // The machine's clock, swap and quotas.
    "settimeofday",
    "clock_settime",
    "swapon",
    "swapoff",
    "quotactl",
    "quotactl_fd",
    // Mounts, old and new.
    "mount",
    "umount2",
    "pivot_root",
    "move_mount",
    "open_tree",
    "open_tree_attr",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    // Other namespaces; creation of new ones is below.
    "setns",
    // Files by handle instead of by path, past the permissions of directories.
    "open_by_handle_at",
    // Opens files of a whole file system as others access them.
    "fanotify_init",
    // Keyrings belong to a user, not to a namespace.
    "add_key",
    "request_key",
    "keyctl",
    // Old or rare parts of the kernel with a history of bugs; users of the first four fall back.
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "userfaultfd",
    "lookup_dcookie",
    "nfsservctl",
    "sysfs",
    "uselib",
    "ustat",
    "vhangup",
    "vserver",
    "_sysctl",
];

/// The namespace flags of `clone`: mount, cgroup, uts, ipc, user, pid, network.
const NAMESPACES: [u64; 7] = [
    0x0002_0000,
    0x0200_0000,
    0x0400_0000,
    0x0800_0000,
    0x1000_0000,
    0x2000_0000,
    0x4000_0000,
];
/// The time namespace, for `unshare` and `clone3` only: in `clone` the bit is part of the exit
/// signal.
const TIME_NAMESPACE: u64 = 0x80;

/// Requests that inject characters into a terminal's input: `TIOCSTI`, `TIOCLINUX`.
const TERMINAL_INJECTION: [u64; 2] = [0x5412, 0x541c];

/// Sockets to the hypervisor, which belong to no network namespace.
const AF_VSOCK: u64 = 40;

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

pub(super) fn policy() -> Policy {
    let refused = SeccompAction::Errno(EPERM);
    let mut rules: Vec<Rule> = REFUSED
        .iter()
        .filter_map(|name| rule(name, Vec::new(), &refused))
        .collect();
    for flag in NAMESPACES {
        let given = || vec![argument(0, SeccompCmpOp::MaskedEq(flag), flag)];
        rules.extend(rule("clone", given(), &refused));
        rules.extend(rule("unshare", given(), &refused));
    }
    let time = argument(0, SeccompCmpOp::MaskedEq(TIME_NAMESPACE), TIME_NAMESPACE);
    rules.extend(rule("unshare", vec![time], &refused));
    // Its flags are in memory, which BPF cannot read; C libraries fall back to `clone` on ENOSYS.
    rules.extend(rule("clone3", Vec::new(), &SeccompAction::Errno(ENOSYS)));
    for request in TERMINAL_INJECTION {
        let given = argument(1, SeccompCmpOp::Eq, request);
        rules.extend(rule("ioctl", vec![given], &refused));
    }
    let family = argument(0, SeccompCmpOp::Eq, AF_VSOCK);
    rules.extend(rule("socket", vec![family], &refused));
    Policy {
        default: SeccompAction::Allow,
        rules,
    }
}

fn rule(
    name: &str,
    conditions: Vec<Option<SeccompCondition>>,
    action: &SeccompAction,
) -> Option<Rule> {
    Some(Rule {
        // Not every architecture has all of them.
        call: name.parse::<Sysno>().ok()?.id().into(),
        conditions: conditions.into_iter().collect::<Option<_>>()?,
        action: action.clone(),
    })
}

/// Compares the lower 32 bits: the kernel ignores the upper half of these arguments.
fn argument(index: u8, operator: SeccompCmpOp, value: u64) -> Option<SeccompCondition> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value).ok()
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn every_refused_name_is_a_system_call() {
        for name in REFUSED {
            assert!(name.parse::<Sysno>().is_ok(), "{name}");
        }
    }
}
