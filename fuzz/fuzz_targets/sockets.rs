//! Socket tables: never more sockets than lines, and each is parsed to itself once written as the
//! kernel does.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use mainstay_node::sockets::{Protocol, Socket, parse};

fuzz_target!(|data: &[u8]| {
    let sockets: Vec<Socket> = parse(data, Protocol::Tcp6).collect();
    assert!(sockets.len() <= data.split(|byte| *byte == b'\n').count());
    for socket in sockets {
        let again: Vec<Socket> = parse(written(&socket).as_bytes(), Protocol::Tcp6).collect();
        assert_eq!(again, [socket]);
    }
});

fn written(socket: &Socket) -> String {
    format!(
        "  1: {} {} {:02X} {:08X}:{:08X} {:02X}:{:08X} {:08X} {:5} {:8} {} {} {:016x} 0 0 0 0 0\n",
        address(socket.local),
        address(socket.remote),
        socket.state,
        socket.send_queue,
        socket.receive_queue,
        socket.timer,
        socket.timer_when,
        socket.retransmits,
        socket.uid,
        socket.unanswered_probes,
        socket.inode,
        socket.references,
        socket.pointer,
    )
}

fn address((ip, port): (IpAddr, u16)) -> String {
    let bytes = match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let mut words = String::new();
    for four in bytes.chunks_exact(4) {
        let word = u32::from_ne_bytes([four[0], four[1], four[2], four[3]]);
        words.push_str(&format!("{word:08X}"));
    }
    format!("{words}:{port:04X}")
}
