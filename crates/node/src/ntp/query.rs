//! One question to an NTP server. Blocks until the answer or a timeout.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::packet::{Measurement, NtpError, PACKET_BYTES, Request};

pub const DEFAULT_PORT: u16 = 123;
/// The time one address gets to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 2;
/// An answer with extension fields is longer than a packet without.
const BUFFER_BYTES: usize = 1024;

/// The reason that there is no measurement.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error("cannot resolve NTP server {host}")]
    Unresolved { host: String, source: io::Error },
    #[error("NTP server {host} has no address")]
    NoAddress { host: String },
    #[error("{address} is not the address of one host; NTP servers are asked one by one")]
    NotUnicast { address: IpAddr },
    #[error("cannot query NTP server {address}")]
    Io {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("NTP server {address} did not answer within {} s", ANSWER_TIMEOUT.as_secs())]
    NoAnswer { address: SocketAddr },
    #[error("the answer of NTP server {address} is not usable")]
    Unusable {
        address: SocketAddr,
        source: NtpError,
    },
}

/// Measures the clock of a server by name or address; the first of its addresses that answers
/// counts.
pub fn query(host: &str, port: u16) -> Result<Measurement, QueryError> {
    let resolved = (host, port)
        .to_socket_addrs()
        .map_err(|source| QueryError::Unresolved {
            host: host.to_owned(),
            source,
        })?;
    let mut last = QueryError::NoAddress {
        host: host.to_owned(),
    };
    for address in resolved.take(MAX_ADDRESSES) {
        match query_address(address) {
            Ok(found) => return Ok(found),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn query_address(address: SocketAddr) -> Result<Measurement, QueryError> {
    let ip = address.ip();
    if ip.is_multicast() || ip.is_unspecified() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
        return Err(QueryError::NotUnicast { address: ip });
    }
    let failed = |source| QueryError::Io { address, source };
    let any: IpAddr = if address.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    // Connected: the kernel drops packets of others and reports a closed port.
    let socket = UdpSocket::bind((any, 0)).map_err(failed)?;
    socket.connect(address).map_err(failed)?;
    let request = Request::new(cookie().map_err(failed)?);
    let sent_nanos = now_nanos();
    let sent = Instant::now();
    socket.send(&request.packet()).map_err(failed)?;
    let mut buffer = [0; BUFFER_BYTES];
    loop {
        let left = ANSWER_TIMEOUT.saturating_sub(sent.elapsed());
        if left.is_zero() {
            return Err(QueryError::NoAnswer { address });
        }
        socket.set_read_timeout(Some(left)).map_err(failed)?;
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => continue,
                io::ErrorKind::Interrupted => continue,
                _ => return Err(failed(error)),
            },
        };
        let elapsed = sent.elapsed();
        let packet = buffer.get(..length).unwrap_or_default();
        // Somebody else's packet, or a late answer to an earlier question, ends nothing.
        if length >= PACKET_BYTES && !request.is_answered_by(packet) {
            continue;
        }
        return request
            .measure(packet, sent_nanos, elapsed)
            .map_err(|source| QueryError::Unusable { address, source });
    }
}

fn cookie() -> io::Result<[u8; 8]> {
    let mut cookie = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut cookie)?;
    Ok(cookie)
}

/// The local clock in nanoseconds since 1970.
fn now_nanos() -> i128 {
    let nanos = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => nanos(since),
        Err(before) => -nanos(before.duration()),
    }
}
