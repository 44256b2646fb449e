//! The sockets of the node, bound by the daemon or inherited from the service manager.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, TcpSocket, UnixListener};

use super::activation::Inherited;
use super::aurae_socket::{self, SocketFile};
use crate::config::Config;

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
}

impl Sockets {
    pub async fn bind(config: &Config, socket: &Path) -> Result<Self, BindError> {
        let inherited = Inherited::take().map_err(|source| BindError::Inherited { source })?;
        let use_tcp = |listener: std::net::TcpListener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        };
        let tls = match inherited.tls {
            Some(listener) => {
                use_tcp(listener).map_err(|source| BindError::Inherited { source })?
            }
            None => tcp(config.settings.listen).await?,
        };
        let pods = match (inherited.pods, config.settings.pods_listen) {
            (Some(listener), _) => {
                Some(use_tcp(listener).map_err(|source| BindError::Inherited { source })?)
            }
            (None, Some(address)) => Some(tcp(address.0).await?),
            (None, None) => None,
        };
        let use_unix = |listener: std::os::unix::net::UnixListener| {
            let listener = listener
                .set_nonblocking(true)
                .and_then(|()| UnixListener::from_std(listener));
            listener.map_err(|source| BindError::Inherited { source })
        };
        let unix = match inherited.unix {
            Some(listener) => use_unix(listener)?,
            None => unix(socket).map_err(|source| BindError::Unix {
                path: socket.to_owned(),
                source,
            })?,
        };
        let aurae_path = config.settings.compatibility.aurae_socket.as_ref();
        let (aurae, aurae_file) = match (inherited.aurae, aurae_path) {
            (Some(listener), _) => (Some(use_unix(listener)?), None),
            (None, Some(path)) => {
                let bound = aurae_socket::bind(&path.0).map_err(|source| BindError::Unix {
                    path: path.0.clone(),
                    source,
                })?;
                (Some(bound.0), Some(bound.1))
            }
            (None, None) => (None, None),
        };
        Ok(Self {
            tls,
            unix,
            pods,
            aurae,
            aurae_file,
        })
    }
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
