//! File names of any bytes as text, on the wire and on the command line.
//!
//! A Linux file name is any bytes but NUL and `/`; a protobuf `string` and a terminal want UTF-8.
//! Two forms, each of them reversible for every name:
//!
//! * [`to_wire`] and [`from_wire`]: a byte that is not part of valid UTF-8 becomes one code point of
//!   U+10FE80 to U+10FEFF, which end in that byte. A client that knows nothing of this can send back
//!   what it was sent. Names that are UTF-8 do not change, except the few that contain those code
//!   points, whose bytes are escaped one by one.
//! * [`escape`] and [`unescape`]: `\xHH` for bytes that are not UTF-8 and for characters that a
//!   terminal does not show. A backslash stays, unless what follows it would read as an escape.
//!
//! Neither form is a check: what a path leads to is checked when it is opened.

use std::borrow::Cow;

/// The code point that stands for byte 0; only those of 0x80 to 0xff are used.
const ESCAPE_BASE: u32 = 0x0010_fe00;

/// Returns the code point for a byte that is not UTF-8.
fn escape_of(byte: u8) -> char {
    char::from_u32(ESCAPE_BASE + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Returns the byte that a code point stands for.
fn escaped_byte(c: char) -> Option<u8> {
    let byte = u8::try_from(u32::from(c).checked_sub(ESCAPE_BASE)?).ok()?;
    (byte >= 0x80).then_some(byte)
}

/// Returns a name as a `string` of the API.
pub fn to_wire(name: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(name)
        && !text.contains(|c| escaped_byte(c).is_some())
    {
        return Cow::Borrowed(text);
    }
    let mut wire = String::with_capacity(name.len() * 2);
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if escaped_byte(c).is_some() {
                wire.extend(c.encode_utf8(&mut [0; 4]).bytes().map(escape_of));
            } else {
                wire.push(c);
            }
        }
        wire.extend(chunk.invalid().iter().copied().map(escape_of));
    }
    Cow::Owned(wire)
}

/// Returns the name that [`to_wire`] made `wire` of.
pub fn from_wire(wire: &str) -> Vec<u8> {
    let mut name = Vec::with_capacity(wire.len());
    for c in wire.chars() {
        match escaped_byte(c) {
            Some(byte) => name.push(byte),
            None => name.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    name
}

/// Returns a name for people: printable, on one line, and as [`unescape`] reads it.
pub fn escape(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    let mut rest = name;
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            let reads_as_escape = c == '\\' && escape_at(rest).is_some();
            if is_hidden(c) || reads_as_escape || escaped_byte(c).is_some() {
                c.encode_utf8(&mut [0; 4])
                    .bytes()
                    .for_each(|byte| push_hex(&mut text, byte));
            } else {
                text.push(c);
            }
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
        for byte in chunk.invalid() {
            push_hex(&mut text, *byte);
        }
        rest = rest.get(chunk.invalid().len()..).unwrap_or_default();
    }
    text
}

/// Returns the name that [`escape`] made `text` of. Any other bytes stand for themselves.
pub fn unescape(text: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        match escape_at(rest) {
            Some(byte) => {
                name.push(byte);
                rest = rest.get(4..).unwrap_or_default();
            }
            None => {
                name.push(*first);
                rest = tail;
            }
        }
    }
    name
}

/// Returns a wire name for people, as [`escape`].
pub fn escape_wire(wire: &str) -> String {
    escape(&from_wire(wire))
}

/// Returns the wire form of a name that a person wrote: with the escapes of [`unescape`], with bytes
/// that are not UTF-8, or in the form of the wire, as JSON output has it.
pub fn wire_of_argument(argument: &[u8]) -> String {
    let mut wire = String::with_capacity(argument.len());
    let mut rest = argument;
    // A stretch of bytes ends at a code point of the wire, which stands for itself.
    while !rest.is_empty() {
        let (plain, escape) = split_at_wire_escape(rest);
        wire.push_str(&to_wire(&unescape(plain)));
        rest = rest.get(plain.len()..).unwrap_or_default();
        if let Some(c) = escape {
            wire.push(c);
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
    }
    wire
}

fn split_at_wire_escape(bytes: &[u8]) -> (&[u8], Option<char>) {
    let mut length = 0;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if escaped_byte(c).is_some() {
                return (bytes.get(..length).unwrap_or_default(), Some(c));
            }
            length += c.len_utf8();
        }
        length += chunk.invalid().len();
    }
    (bytes, None)
}

/// Returns the byte of an escape at the beginning of `text`. Escapes of printable ASCII are none,
/// so that names such as `dev-disk\x2duuid` mean themselves; only the backslash has one.
fn escape_at(text: &[u8]) -> Option<u8> {
    let [b'\\', b'x', high, low, ..] = text else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()?;
    matches!(byte, 0x01..=0x1f | b'\\' | 0x7f..).then_some(byte)
}

fn push_hex(text: &mut String, byte: u8) {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
    text.extend(['\\', 'x', digit(byte >> 4), digit(byte & 15)]);
}

/// True for control, zero-width and bidirectional characters, which could move the cursor or hide
/// a part of the name.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn utf8_names_are_the_same_on_the_wire() {
        for name in [
            "/etc/hosts",
            "/mnt/größe",
            "a\\xff",
            "dev\\x2ddisk",
            "\u{fffd}",
        ] {
            assert_eq!(to_wire(name.as_bytes()), name);
            assert_eq!(from_wire(name), name.as_bytes());
        }
    }

    #[test]
    fn other_bytes_have_their_own_code_points() {
        assert_eq!(to_wire(b"/tmp/a\xff"), "/tmp/a\u{10feff}");
        assert_eq!(to_wire(b"\xc3\xbc\xc3"), "ü\u{10fec3}");
        // A real name with such a code point does not collide with it.
        let real = "\u{10feff}".as_bytes();
        assert_ne!(to_wire(real), to_wire(b"\xff"));
        assert_eq!(from_wire(&to_wire(real)), real);
    }

    #[test]
    fn people_see_escapes_only_where_they_are_needed() {
        for (name, text) in [
            (&b"plain \xc3\xbc"[..], "plain ü"),
            (b"a\xff", "a\\xff"),
            (b"two\nlines\x1b[2J", "two\\x0alines\\x1b[2J"),
            (b"dev\\x2ddisk", "dev\\x2ddisk"),
            (b"literal\\xff", "literal\\x5cxff"),
            (b"twice\\x5c", "twice\\x5cx5c"),
            (b"\xe2\x80\xae", "\\xe2\\x80\\xae"),
        ] {
            assert_eq!(escape(name), text);
            assert_eq!(unescape(text.as_bytes()), name);
        }
    }

    #[test]
    fn arguments_are_escaped_raw_or_copied_from_json() {
        for argument in [
            &b"/tmp/a\\xff"[..],
            b"/tmp/a\xff",
            "/tmp/a\u{10feff}".as_bytes(),
        ] {
            assert_eq!(from_wire(&wire_of_argument(argument)), b"/tmp/a\xff");
        }
        assert_eq!(wire_of_argument(b"/etc/hosts"), "/etc/hosts");
    }

    /// Names out of pieces that could be confused with each other.
    fn name() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            any::<u8>().prop_map(|byte| vec![byte]),
            any::<char>().prop_map(|c| c.to_string().into_bytes()),
            any::<u8>().prop_map(|byte| format!("\\x{byte:02x}").into_bytes()),
            any::<u8>().prop_map(|byte| escape_of(byte).to_string().into_bytes()),
            Just(b"\\".to_vec()),
            Just(b"\\x5c".to_vec()),
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| {
            let bytes = pieces.concat();
            bytes.into_iter().filter(|byte| *byte != 0).collect()
        })
    }

    proptest! {
        #[test]
        fn every_name_survives_the_wire(name in name()) {
            prop_assert_eq!(from_wire(&to_wire(&name)), name);
        }

        #[test]
        fn every_name_survives_the_terminal(name in name()) {
            let text = escape(&name);
            prop_assert!(!text.contains(is_hidden), "{}", text);
            prop_assert_eq!(&unescape(text.as_bytes()), &name);
            prop_assert_eq!(from_wire(&wire_of_argument(text.as_bytes())), name);
        }

        #[test]
        fn every_wire_name_is_an_argument(name in name()) {
            let wire = to_wire(&name);
            // Only where the wire has no backslash that would read as an escape.
            prop_assume!(unescape(wire.as_bytes()) == wire.as_bytes());
            prop_assert_eq!(wire_of_argument(wire.as_bytes()), wire);
        }
    }
}
