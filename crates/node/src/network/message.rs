//! Netlink messages and their attributes, as bytes of the kernel's byte order.
//!
//! Accepts any bytes: a length that does not fit ends the iteration.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of `struct nlmsghdr`.
pub(super) const HEADER_BYTES: usize = 16;
const ATTRIBUTE_HEADER_BYTES: usize = 4;
/// The upper bits of an attribute's type are flags (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
const ATTRIBUTE_TYPE_MASK: u16 = 0x3fff;

/// A netlink message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    pub(super) body: &'a [u8],
}

/// Splits a datagram into its messages.
pub(super) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = usize::try_from(number::<4>(bytes, 0).map(u32::from_ne_bytes)?).ok()?;
        let body = bytes.get(HEADER_BYTES..length)?;
        let message = Message {
            kind: u16::from_ne_bytes(number(bytes, 4)?),
            flags: u16::from_ne_bytes(number(bytes, 6)?),
            sequence: u32::from_ne_bytes(number(bytes, 8)?),
            body,
        };
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some(message)
    })
}

/// Returns the attributes of a message as pairs of type and value.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(number(bytes, 0)?));
        let kind = u16::from_ne_bytes(number(bytes, 2)?) & ATTRIBUTE_TYPE_MASK;
        let value = bytes.get(ATTRIBUTE_HEADER_BYTES..length)?;
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Returns `N` bytes at `at`.
pub(super) fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    number(bytes, at).map(u32::from_ne_bytes)
}

/// Reads text up to its NUL byte.
pub(super) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&value[..end.unwrap_or(value.len())]).into_owned()
}

/// Reads an IPv4 or IPv6 address, by its length.
pub(super) fn address(value: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(value) {
        return Some(Ipv4Addr::from(bytes).into());
    }
    let bytes = <[u8; 16]>::try_from(value).ok()?;
    Some(Ipv6Addr::from(bytes).into())
}

/// Messages and attributes start at multiples of four.
fn aligned(length: usize) -> usize {
    // A length of 0 would never end the iteration; `get` above has refused it already.
    length.saturating_add(3) & !3
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_and_attributes_are_split_at_their_aligned_lengths() {
        let mut bytes = Vec::new();
        for (length, kind) in [(19_u32, 7_u16), (16, 8)] {
            bytes.extend(length.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend([0; 10]);
            bytes.extend(&b"abc\0"[..if length == 19 { 4 } else { 0 }]);
        }
        let found: Vec<_> = messages(&bytes).map(|m| (m.kind, m.body)).collect();
        assert_eq!(found, [(7, &b"abc"[..]), (8, &b""[..])]);

        let attribute = [5_u16.to_ne_bytes(), 0x8003_u16.to_ne_bytes()].concat();
        let bytes = [&attribute[..], b"x\0\0\0", &attribute, b"y"].concat();
        let found: Vec<_> = attributes(&bytes).collect();
        assert_eq!(found, [(3, &b"x"[..]), (3, &b"y"[..])]);
    }

    #[test]
    fn a_length_that_does_not_fit_ends_the_iteration() {
        for length in [0_u32, 15, 17, u32::MAX] {
            let bytes = [&length.to_ne_bytes()[..], &[0; 12]].concat();
            assert_eq!(messages(&bytes).count(), 0);
        }
        for length in [0_u16, 3, 5, u16::MAX] {
            let bytes = [&length.to_ne_bytes()[..], &[0; 2]].concat();
            assert_eq!(attributes(&bytes).count(), 0);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = super::super::parse_dump(&bytes);
            let _ = attributes(&bytes).count();
        }
    }
}
