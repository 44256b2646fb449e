//! The user at the other end of a TCP connection within this machine, by `sock_diag(7)`.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
/// `struct nlmsghdr`, `struct inet_diag_sockid`, and where `struct inet_diag_msg` has the UID.
const HEADER_BYTES: usize = 16;
const SOCKET_ID_BYTES: usize = 48;
const UID_OFFSET: usize = HEADER_BYTES + 4 + SOCKET_ID_BYTES + 12;

/// Returns the UID that owns the TCP socket bound to `local` and connected to `remote`; `None` if
/// this network namespace has no such socket.
pub fn owner_of_tcp(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(SOCK_DIAG),
    )?;
    let request = request(local, remote);
    let kernel = SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(&socket, &request, SendFlags::empty(), &kernel)?;
    // The kernel answers within the request, so that there is nothing to wait for.
    let mut reply = [0; 512];
    let (length, _) = rustix::net::recv(&socket, &mut reply, RecvFlags::DONTWAIT)?;
    Ok(uid_in(&reply[..length.min(reply.len())]))
}

fn request(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let family = if local.is_ipv4() { AF_INET } else { AF_INET6 };
    let mut body = vec![family, IPPROTO_TCP, 0, 0];
    // All states.
    body.extend_from_slice(&u32::MAX.to_ne_bytes());
    body.extend_from_slice(&local.port().to_be_bytes());
    body.extend_from_slice(&remote.port().to_be_bytes());
    for address in [local, remote] {
        let mut bytes = [0; 16];
        match address.ip() {
            IpAddr::V4(ip) => bytes[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => bytes = ip.octets(),
        }
        body.extend_from_slice(&bytes);
    }
    // Any interface; no cookie.
    body.extend_from_slice(&0_u32.to_ne_bytes());
    body.extend_from_slice(&[0xff; 8]);

    let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX);
    let mut request = length.to_ne_bytes().to_vec();
    request.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    // Sequence number and port ID.
    request.extend_from_slice(&[0; 8]);
    request.extend_from_slice(&body);
    request
}

fn uid_in(reply: &[u8]) -> Option<u32> {
    let kind = reply.get(4..6)?;
    if kind != SOCK_DIAG_BY_FAMILY.to_ne_bytes() {
        return None;
    }
    let uid = reply.get(UID_OFFSET..UID_OFFSET + 4)?;
    Some(u32::from_ne_bytes(uid.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_owner_of_a_connection_on_loopback_is_found() {
        let own = rustix::process::geteuid().as_raw();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A machine may have no IPv6.
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (_accepted, peer) = listener.accept().unwrap();
            let found = owner_of_tcp(peer, listener.local_addr().unwrap()).unwrap();
            assert_eq!(found, Some(own), "{address}");
            drop(client);
        }
    }

    #[test]
    fn a_missing_socket_has_no_owner() {
        let nowhere = "127.0.0.1:1".parse().unwrap();
        assert_eq!(owner_of_tcp(nowhere, nowhere).unwrap(), None);
        assert_eq!(uid_in(&[]), None);
        assert_eq!(uid_in(&[0; 200]), None);
    }
}
