//! Socket tables of the requested network namespaces.
//!
//! A namespace other than the node's own is entered by a dedicated thread that exits afterwards: no
//! other thread ever leaves the node's network namespace.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, open, openat, stat, statat};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::table::{Protocol, Socket, parse};
use crate::processes::pids;

/// The directory in which network namespaces are bind-mounted by name.
const NAMED: &str = "/run/netns";
/// NAME_MAX.
const MAX_NAME_BYTES: usize = 255;

/// The network namespaces to read; by default the node's own.
#[derive(Debug, Clone, Default)]
pub struct Namespaces {
    pub own: bool,
    /// A name in `/run/netns`, or `net:[4026531840]`.
    pub named: Vec<String>,
    /// Every namespace that has a name or a process.
    pub all: bool,
}

#[derive(Debug)]
pub struct SocketsOf {
    /// Empty for the node's own.
    pub namespace: String,
    pub sockets: Vec<Socket>,
}

#[derive(Debug, thiserror::Error)]
pub enum NamespacesError {
    #[error(
        "network namespace {name:?} not found; it must have a name in {NAMED} or be written \
         net:[NUMBER] and have a process"
    )]
    NotFound { name: String },
    #[error("network namespace name {name:?} is not valid; use a name in {NAMED}, or net:[NUMBER]")]
    BadName { name: String },
    #[error("{NAMED}/{name} is not a network namespace")]
    NotANamespace { name: String },
    #[error("permission denied to enter network namespace {name:?}; run the node as root")]
    Denied { name: String },
    #[error("cannot read {what}")]
    Io {
        what: String,
        #[source]
        source: io::Error,
    },
}

/// Device and inode, which identify a namespace whatever its name.
type Identity = (u64, u64);

/// Reads the sockets of some protocols in each namespace.
pub fn sockets(
    protocols: &[Protocol],
    wanted: &Namespaces,
) -> Result<Vec<SocketsOf>, NamespacesError> {
    let mut all = Vec::new();
    let elsewhere = wanted.all || !wanted.named.is_empty();
    if wanted.own || wanted.all || !elsewhere {
        all.push(read_tables("/proc/self/net", String::new(), protocols)?);
    }
    if elsewhere {
        let others = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("netns".to_owned())
                .spawn_scoped(scope, || Traveller::new(protocols)?.visit(wanted))
                .map_err(|source| failed("a network namespace", source))?;
            match thread.join() {
                Ok(others) => others,
                Err(_) => Err(failed(
                    "a network namespace",
                    io::Error::other("the thread that read it failed"),
                )),
            }
        })?;
        all.extend(others);
    }
    Ok(all)
}

/// Reads namespaces, each once.
struct Traveller<'a> {
    protocols: &'a [Protocol],
    proc: OwnedFd,
    own: Identity,
    seen: HashSet<Identity>,
    found: Vec<SocketsOf>,
    /// A process in each namespace, read on first use.
    held: Option<Vec<(Identity, i32)>>,
}

impl<'a> Traveller<'a> {
    fn new(protocols: &'a [Protocol]) -> Result<Self, NamespacesError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = open("/proc", flags, Mode::empty())
            .map_err(|errno| failed("the processes", errno.into()))?;
        let own = stat("/proc/self/ns/net")
            .map_err(|errno| failed("the node's own network namespace", errno.into()))?;
        Ok(Self {
            protocols,
            proc,
            own: (own.st_dev, own.st_ino),
            seen: HashSet::new(),
            found: Vec::new(),
            held: None,
        })
    }

    fn visit(mut self, wanted: &Namespaces) -> Result<Vec<SocketsOf>, NamespacesError> {
        for name in &wanted.named {
            self.visit_named(name)?;
        }
        if wanted.all {
            // The node's own namespace, already read.
            self.seen.insert(self.own);
            self.visit_all()?;
        }
        Ok(self.found)
    }

    fn visit_named(&mut self, name: &str) -> Result<(), NamespacesError> {
        let name = name.to_owned();
        if name.len() > MAX_NAME_BYTES || matches!(name.as_str(), "" | "." | "..") {
            return Err(NamespacesError::BadName { name });
        }
        if let Some(inode) = number_of(&name) {
            let held = self.held()?.iter().find(|((_, held), _)| *held == inode);
            return match held.copied().and_then(|(_, pid)| self.open_of(pid)) {
                Some(file) => self.enter(&file, name),
                None => Err(NamespacesError::NotFound { name }),
            };
        }
        if name.contains('/') {
            return Err(NamespacesError::BadName { name });
        }
        match open_file(CWD, &format!("{NAMED}/{name}")) {
            Ok(file) => self.enter(&file, name),
            Err(Errno::NOENT) => Err(NamespacesError::NotFound { name }),
            Err(Errno::INVAL) => Err(NamespacesError::BadName { name }),
            Err(errno) => Err(failed(&format!("{NAMED}/{name}"), errno.into())),
        }
    }

    fn visit_all(&mut self) -> Result<(), NamespacesError> {
        for name in names_in(Path::new(NAMED)) {
            match self.visit_named(&name) {
                // Removed since, or a stale file.
                Err(NamespacesError::NotFound { .. } | NamespacesError::NotANamespace { .. }) => {}
                visited => visited?,
            }
        }
        for (identity, pid) in self.held()?.to_vec() {
            if self.seen.contains(&identity) {
                continue;
            }
            // Otherwise the process has exited since.
            if let Some(file) = self.open_of(pid) {
                self.enter(&file, format!("net:[{}]", identity.1))?;
            }
        }
        Ok(())
    }

    fn enter(&mut self, file: &OwnedFd, name: String) -> Result<(), NamespacesError> {
        let about = fstat(file).map_err(|errno| failed(&name, errno.into()))?;
        if !self.seen.insert((about.st_dev, about.st_ino)) {
            return Ok(());
        }
        match move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)) {
            Ok(()) => {}
            Err(Errno::INVAL) => return Err(NamespacesError::NotANamespace { name }),
            Err(Errno::PERM) => return Err(NamespacesError::Denied { name }),
            Err(errno) => return Err(failed(&name, errno.into())),
        }
        self.found
            .push(read_tables("/proc/thread-self/net", name, self.protocols)?);
        Ok(())
    }

    /// Returns the namespaces of processes, each with its lowest PID, without processes that have
    /// exited or deny access.
    fn held(&mut self) -> Result<&[(Identity, i32)], NamespacesError> {
        if self.held.is_none() {
            let pids = pids(self.proc.as_fd()).map_err(|source| failed("the processes", source))?;
            let mut known = HashSet::new();
            let held = pids.into_iter().filter_map(|pid| {
                let about = statat(&self.proc, format!("{pid}/ns/net"), AtFlags::empty()).ok()?;
                let identity = (about.st_dev, about.st_ino);
                known.insert(identity).then_some((identity, pid))
            });
            self.held = Some(held.collect());
        }
        Ok(self.held.as_deref().unwrap_or_default())
    }

    fn open_of(&self, pid: i32) -> Option<OwnedFd> {
        open_file(self.proc.as_fd(), &format!("{pid}/ns/net")).ok()
    }
}

/// Parses the inode in `net:[4026531840]`.
fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}

/// Lists a directory; empty if it does not exist.
fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

fn open_file(at: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, Errno> {
    // The file may be anything; opening a FIFO must not block.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    openat(at, path, flags, Mode::empty())
}

/// Reads the table of a protocol; a protocol this kernel lacks has no sockets.
fn read_tables(
    dir: &str,
    namespace: String,
    protocols: &[Protocol],
) -> Result<SocketsOf, NamespacesError> {
    let mut sockets = Vec::new();
    for protocol in protocols {
        let path = format!("{dir}/{}", protocol.name());
        match std::fs::read(&path) {
            Ok(table) => sockets.extend(parse(&table, *protocol)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(&path, error)),
        }
    }
    Ok(SocketsOf { namespace, sockets })
}

fn failed(what: &str, source: io::Error) -> NamespacesError {
    NamespacesError::Io {
        what: what.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    #[test]
    fn sockets_of_the_own_namespace_are_listed_with_addresses() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("[::1]:0").unwrap();
        let all = sockets(&Protocol::ALL, &Namespaces::default()).unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].namespace, "");
        let local = |address: std::net::SocketAddr| (address.ip(), address.port());
        for (protocol, address) in [
            (Protocol::Tcp, local(tcp.local_addr().unwrap())),
            (Protocol::Udp6, local(udp.local_addr().unwrap())),
        ] {
            let found = |socket: &&Socket| socket.protocol == protocol && socket.local == address;
            let socket = all[0].sockets.iter().find(found).unwrap();
            assert!(socket.waits_for_anybody());
        }
    }

    #[test]
    fn invalid_and_missing_names_are_different_errors() {
        let ask = |name: &str| {
            let wanted = Namespaces {
                named: vec![name.to_owned()],
                ..Namespaces::default()
            };
            sockets(&[Protocol::Tcp], &wanted).unwrap_err()
        };
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "/run/netns/a",
            "a\0b",
            &"a".repeat(5000),
        ] {
            let error = ask(bad);
            assert!(
                matches!(error, NamespacesError::BadName { .. }),
                "{bad}: {error}"
            );
        }
        for missing in ["no such namespace", "net:[1]", "net:[]", "net:[x]"] {
            let error = ask(missing);
            assert!(
                matches!(error, NamespacesError::NotFound { .. }),
                "{missing}: {error}"
            );
        }
    }
}
