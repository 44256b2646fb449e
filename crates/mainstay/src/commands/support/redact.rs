//! Removal of private keys from text of nodes: whatever a program has logged, an archive must not
//! carry a key.

use std::ops::Range;

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const KEY_MARK: &[u8] = b"PRIVATE KEY-----";
/// The longest name of a kind of key, such as `OPENSSH `.
const MAX_KIND_BYTES: usize = 32;
/// `-----BEGIN ` in base64, in which configuration files embed PEM.
const BEGIN_BASE64: &[u8] = b"LS0tLS1CRUdJTi";
const REMOVED: &[u8] = b"(private key removed)";
const REMOVED_BASE64: &[u8] = b"(base64 of PEM removed)";

/// Replaces PEM blocks of private keys, also cut-off ones, and PEM in base64.
pub(super) fn redact(text: Vec<u8>) -> Vec<u8> {
    without_base64(without_keys(text))
}

fn without_keys(text: Vec<u8>) -> Vec<u8> {
    if find(&text, KEY_MARK).is_none() {
        return text;
    }
    let mut kept = Vec::with_capacity(text.len());
    let mut rest = text.as_slice();
    while let Some(next) = marker(rest) {
        let (before, after) = (&rest[..next.range.start], &rest[next.range.end..]);
        if next.begins {
            kept.extend(before);
            kept.extend(REMOVED);
            // Without an end, the rest may be the key.
            rest = match marker(after) {
                Some(end) if end.begins => &after[end.range.start..],
                Some(end) => &after[end.range.end..],
                None => &[],
            };
        } else {
            // The beginning was cut off; nobody knows where the key starts.
            kept.extend(REMOVED);
            rest = after;
        }
    }
    kept.extend(rest);
    kept
}

struct Marker {
    begins: bool,
    range: Range<usize>,
}

/// The first line that begins or ends a private key.
fn marker(text: &[u8]) -> Option<Marker> {
    let mut from = 0;
    while let Some(at) = find(&text[from..], b"-----") {
        let start = from + at;
        let here = &text[start..];
        for (prefix, begins) in [(BEGIN, true), (END, false)] {
            let Some(after) = here.strip_prefix(prefix) else {
                continue;
            };
            let near = &after[..after.len().min(MAX_KIND_BYTES + KEY_MARK.len())];
            if let Some(mark) = find(near, KEY_MARK) {
                let end = start + prefix.len() + mark + KEY_MARK.len();
                return Some(Marker {
                    begins,
                    range: start..end,
                });
            }
        }
        from = start + 1;
    }
    None
}

fn without_base64(text: Vec<u8>) -> Vec<u8> {
    if find(&text, BEGIN_BASE64).is_none() {
        return text;
    }
    let mut kept = Vec::with_capacity(text.len());
    let mut rest = text.as_slice();
    while let Some(at) = find(rest, BEGIN_BASE64) {
        kept.extend(&rest[..at]);
        kept.extend(REMOVED_BASE64);
        let run = rest[at..]
            .iter()
            .position(|byte| !(byte.is_ascii_alphanumeric() || b"+/=-_".contains(byte)));
        rest = run.map_or(&[], |run| &rest[at + run..]);
    }
    kept.extend(rest);
    kept
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn redacted(text: &str) -> String {
        String::from_utf8(redact(text.as_bytes().to_vec())).unwrap()
    }

    #[test]
    fn keys_are_removed_and_the_rest_stays() {
        for (text, wanted) in [
            ("plain", "plain"),
            (
                "a\n-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\nb",
                "a\n(private key removed)\nb",
            ),
            (
                "{\"k\":\"-----BEGIN EC PRIVATE KEY-----\\nMIIE\\n-----END EC PRIVATE KEY-----\\n\"}",
                "{\"k\":\"(private key removed)\\n\"}",
            ),
            // Cut off at the end, and at the beginning.
            (
                "a -----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn",
                "a (private key removed)",
            ),
            (
                "MIIE\n-----END RSA PRIVATE KEY-----\nb",
                "(private key removed)\nb",
            ),
            (
                "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
                "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
            ),
            (
                "key: LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCk1JSUU=\nb",
                "key: (base64 of PEM removed)\nb",
            ),
            // Two keys, the first without an end.
            (
                "-----BEGIN PRIVATE KEY-----\nA\n-----BEGIN PRIVATE KEY-----\nB\n-----END PRIVATE KEY-----\nc",
                "(private key removed)(private key removed)\nc",
            ),
        ] {
            assert_eq!(redacted(text), wanted);
        }
    }

    proptest! {
        #[test]
        fn no_secret_survives_between_its_marks(
            before in "[ -~\n]{0,40}", secret in "[A-Za-z0-9+/\n]{0,60}", after in "[ -~\n]{0,40}"
        ) {
            let secret = format!("S3CRET{secret}");
            let text = format!(
                "{before}-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----{after}"
            );
            prop_assert!(!redacted(&text).contains("S3CRET"));
        }

        #[test]
        fn no_bytes_cause_a_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = redact(text);
        }
    }
}
