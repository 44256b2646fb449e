//! Host name and addresses of this machine.

use std::net::IpAddr;

/// Returns the kernel's host name, or `localhost` when it has none or one that is not text.
pub fn hostname() -> String {
    match rustix::system::uname().nodename().to_str() {
        Ok(name) if !name.is_empty() && name != "(none)" => name.to_owned(),
        _ => "localhost".to_owned(),
    }
}

/// Returns every address of every interface that is up, loopback included, sorted and without
/// duplicates.
///
/// IPv6 link-local addresses are left out: without a zone they are ambiguous.
pub fn own_addresses() -> Vec<IpAddr> {
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else {
        return Vec::new();
    };
    let mut addresses: Vec<IpAddr> = interfaces
        .filter(|interface| {
            interface
                .flags
                .contains(nix::net::if_::InterfaceFlags::IFF_UP)
        })
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
        })
        .filter(|address| !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()))
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn loopback_is_one_of_our_addresses() {
        assert!(own_addresses().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }

    #[test]
    fn the_host_name_is_that_of_the_kernel() {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(hostname(), kernel.trim_end());
    }
}
