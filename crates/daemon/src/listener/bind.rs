//! The sockets of the node, bound by the daemon or inherited from the service manager.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, TcpSocket, UnixListener};

use super::activation::{AURAE, Inherited, PODS, TLS, UNIX};
use super::aurae_socket::{self, SocketFile};
use crate::config::Config;
use crate::handover::{self, HandedSocket};

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("cannot listen on {address}{}", hint(source))]
    Tcp {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error("cannot listen on unix socket {}", path.display())]
    Unix {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot use an inherited socket")]
    Inherited { source: std::io::Error },
}

fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "; another program listens there, choose another address with --listen ADDR"
        }
        std::io::ErrorKind::PermissionDenied => "; ports below 1024 need root",
        _ => "",
    }
}

/// Connections the kernel queues before they are accepted; its own limit may be lower.
const BACKLOG: u32 = 4096;

#[derive(Debug)]
pub struct Sockets {
    pub tls: TcpListener,
    pub unix: UnixListener,
    pub pods: Option<TcpListener>,
    /// TLS on a unix socket for clients of Aurae.
    pub aurae: Option<UnixListener>,
    /// The file of that socket, if the daemon created it.
    pub aurae_file: Option<SocketFile>,
    /// Copies of all of them, for the daemon that replaces this one.
    pub handed: Vec<HandedSocket>,
}

impl Sockets {
    pub async fn bind(config: &Config, socket: &Path) -> Result<Self, BindError> {
        let inherited = Inherited::take().map_err(inherited_error)?;
        let bound = handover::note().unwrap_or_default().bound;
        let own = |name: &str| bound.iter().any(|bound| bound == name);
        let settings = &config.settings;

        // A socket of the daemon before is used if it is where the configuration wants it; one of
        // the service manager always is.
        let tls = inherited
            .tls
            .filter(|it| !own(TLS) || is_at(it, settings.listen));
        let tls_bound = tls.is_none() || own(TLS);
        let tls = match tls {
            Some(listener) => use_tcp(listener).map_err(inherited_error)?,
            None => tcp(settings.listen).await?,
        };
        let wanted = settings.pods_listen;
        let pods = (inherited.pods)
            .filter(|it| !own(PODS) || wanted.is_some_and(|address| is_at(it, address.0)));
        let pods_bound = pods.is_none() || own(PODS);
        let pods = match (pods, wanted) {
            (Some(listener), _) => Some(use_tcp(listener).map_err(inherited_error)?),
            (None, Some(address)) => Some(tcp(address.0).await?),
            (None, None) => None,
        };
        let unix_listener = inherited
            .unix
            .filter(|it| !own(UNIX) || is_bound_to(it, socket));
        let unix_bound = unix_listener.is_none() || own(UNIX);
        let unix = match unix_listener {
            Some(listener) => use_unix(listener).map_err(inherited_error)?,
            None => unix(socket).map_err(unix_error(socket))?,
        };
        let path = settings.compatibility.aurae_socket.as_ref();
        let path = path.map(|path| path.0.as_path());
        let aurae = (inherited.aurae)
            .filter(|it| !own(AURAE) || path.is_some_and(|path| is_bound_to(it, path)));
        let aurae_bound = aurae.is_none() || own(AURAE);
        let (aurae, aurae_file) = match (aurae, path) {
            (Some(listener), path) => {
                let file = path.filter(|_| aurae_bound).map(aurae_socket::adopt);
                let file = file.transpose().map_err(inherited_error)?;
                (Some(use_unix(listener).map_err(inherited_error)?), file)
            }
            (None, Some(path)) => {
                let (listener, file) = aurae_socket::bind(path).map_err(unix_error(path))?;
                (Some(listener), Some(file))
            }
            (None, None) => (None, None),
        };

        let handed = [
            Some(HandedSocket::of(TLS, tls_bound, &tls)),
            Some(HandedSocket::of(UNIX, unix_bound, &unix)),
            (aurae.as_ref()).map(|it| HandedSocket::of(AURAE, aurae_bound, it)),
            (pods.as_ref()).map(|it| HandedSocket::of(PODS, pods_bound, it)),
        ];
        let handed = handed.into_iter().flatten().collect::<Result<_, _>>();
        Ok(Self {
            tls,
            unix,
            pods,
            aurae,
            aurae_file,
            handed: handed.map_err(inherited_error)?,
        })
    }
}

fn inherited_error(source: std::io::Error) -> BindError {
    BindError::Inherited { source }
}

fn unix_error(path: &Path) -> impl FnOnce(std::io::Error) -> BindError {
    let path = path.to_owned();
    |source| BindError::Unix { path, source }
}

fn use_tcp(listener: std::net::TcpListener) -> std::io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn use_unix(listener: std::os::unix::net::UnixListener) -> std::io::Result<UnixListener> {
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Returns whether a listener is at the wanted address, whose port may be any.
fn is_at(listener: &std::net::TcpListener, wanted: SocketAddr) -> bool {
    listener.local_addr().is_ok_and(|at| {
        at.ip() == wanted.ip() && (wanted.port() == 0 || at.port() == wanted.port())
    })
}

/// Returns whether clients that connect to `path` reach the listener.
fn is_bound_to(listener: &std::os::unix::net::UnixListener, path: &Path) -> bool {
    let bound = listener.local_addr();
    bound.is_ok_and(|bound| bound.as_pathname() == Some(path)) && path.exists()
}

async fn tcp(address: SocketAddr) -> Result<TcpListener, BindError> {
    let listen = || {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|source| BindError::Tcp { address, source })
}

/// Replaces a stale socket file: the state lock is held, so no daemon serves it. The directory has
/// mode 0700, so no other user can connect between bind and chmod.
fn unix(path: &Path) -> std::io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}
