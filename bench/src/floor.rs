//! The floor: the least a gRPC server over mutual TLS can do, with the same libraries, TLS
//! configuration and certificates as the node. It has no router, no authorizer and no log, and its
//! response is a constant.

use std::convert::Infallible;
use std::fs;
use std::future::{Ready, ready};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mainstay_api::machine::{FeaturesInfo, PlatformInfo, Version, VersionInfo, VersionResponse};
use mainstay_identity::tls::ServerTls;
use mainstay_identity::{CertificateInfo, CertifiedNode, PrivateKeyPem};
use mainstay_testkit::ServerProcess;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// The text before the address in the announcement.
const GREETING: &str = "floor serves on ";

/// The floor in a process of its own.
#[derive(Debug)]
pub struct Floor {
    process: ServerProcess,
    address: SocketAddr,
    // Declared last: it holds the standard error of the process.
    _dir: TempDir,
}

impl Floor {
    /// Starts it with the certificates of the node on `state`.
    pub fn start(state: &Path) -> Result<Self> {
        let dir = TempDir::with_prefix("mainstay-bench-")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("floor").arg(state.join("pki"));
        let mut address = None;
        let process = ServerProcess::start(command, &dir.path().join("stderr"), |line| {
            address = line.strip_prefix(GREETING).and_then(|at| at.parse().ok());
            address.is_some()
        });
        Ok(Self {
            process,
            address: address.context("the floor printed no address")?,
            _dir: dir,
        })
    }

    pub fn process(&self) -> &ServerProcess {
        &self.process
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Serves with the certificates in `pki` until it is killed.
pub async fn serve(pki: &Path) -> Result<()> {
    let tls = ServerTls::new(&certified(pki)?)?;
    let acceptor = TlsAcceptor::from(tls.config());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{GREETING}{}", listener.local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(connection(stream, acceptor.clone()));
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor) {
    // A client that goes away, however it does, is not this server's concern.
    if let Ok(stream) = acceptor.accept(stream).await {
        let service = service_fn(async |request: http::Request<hyper::body::Incoming>| {
            let answer = Grpc::new(ProstCodec::default())
                .unary(Constant, request)
                .await;
            Ok::<_, Infallible>(answer)
        });
        let _ = http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }
}

/// The one method, as the generated server hands it to the codec.
struct Constant;

impl UnaryService<()> for Constant {
    type Response = VersionResponse;
    type Future = Ready<Result<Response<VersionResponse>, Status>>;

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(answer())))
    }
}

/// As long as the answer of a real node.
fn answer() -> VersionResponse {
    let version = VersionInfo {
        tag: "v0.0.0".to_owned(),
        sha: "0123456789ab".to_owned(),
        built: "2000-01-01T00:00:00Z".to_owned(),
        go_version: "rustc 1.00.0".to_owned(),
        os: "linux".to_owned(),
        arch: "x86_64".to_owned(),
    };
    let platform = PlatformInfo {
        name: "floor".to_owned(),
        mode: "metal".to_owned(),
    };
    VersionResponse {
        messages: vec![Version {
            metadata: None,
            version: Some(version),
            platform: Some(platform),
            features: Some(FeaturesInfo { rbac: true }),
        }],
    }
}

fn certified(pki: &Path) -> Result<CertifiedNode> {
    let read = |name: &str| {
        let path = pki.join(name);
        fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))
    };
    let cert = read("node.crt")?;
    Ok(CertifiedNode {
        info: CertificateInfo::from_pem(&cert)?,
        cert,
        key: PrivateKeyPem::new(read("node.key")?),
        ca: read("ca.crt")?,
    })
}
