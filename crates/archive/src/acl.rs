//! POSIX ACLs: the kernel's attribute and the text that archives carry, as `SCHILY.acl.access`.

/// The attribute of the ACL that decides on access.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of the ACL that new entries of a directory inherit.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
/// The ID of an entry that has none.
const NO_ID: u32 = u32::MAX;
const USER: u16 = 0x02;
const GROUP: u16 = 0x08;
const TAGS: [(u16, &str); 6] = [
    (0x01, "user"),
    (USER, "user"),
    (0x04, "group"),
    (GROUP, "group"),
    (0x10, "mask"),
    (0x20, "other"),
];

/// Returns the ACL as `user::rw-,user:1000:r--,…`; `None` if it is not one this module knows.
pub(crate) fn to_text(attribute: &[u8]) -> Option<String> {
    let (version, entries) = attribute.split_first_chunk::<4>()?;
    let (entries, rest) = entries.as_chunks::<8>();
    if u32::from_le_bytes(*version) != VERSION || entries.is_empty() || !rest.is_empty() {
        return None;
    }
    let mut words = Vec::with_capacity(entries.len());
    for [t0, t1, p0, p1, id @ ..] in entries {
        let (tag, permissions) = (
            u16::from_le_bytes([*t0, *t1]),
            u16::from_le_bytes([*p0, *p1]),
        );
        let (_, name) = TAGS.iter().find(|(known, _)| *known == tag)?;
        if permissions > 7 {
            return None;
        }
        let id = u32::from_le_bytes(*id);
        let id = match tag {
            USER | GROUP => id.to_string(),
            _ if id == NO_ID => String::new(),
            _ => return None,
        };
        let bit = |bit: u16, letter| if permissions & bit == 0 { '-' } else { letter };
        let (r, w, x) = (bit(4, 'r'), bit(2, 'w'), bit(1, 'x'));
        words.push(format!("{name}:{id}:{r}{w}{x}"));
    }
    Some(words.join(","))
}

/// Returns the attribute for a text with numeric IDs, in the third or, as star writes it, in a
/// fourth field; `None` if it is no ACL, or names users this machine would have to look up.
pub(crate) fn from_text(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut entries = Vec::new();
    for word in text.split([',', '\n']).map(str::trim) {
        if word.is_empty() || word.starts_with('#') {
            continue;
        }
        let mut fields = word.split(':');
        let (name, qualifier, permissions) = (fields.next()?, fields.next()?, fields.next()?);
        let id = fields.next().unwrap_or(qualifier);
        let tag = TAGS.iter().find(|(tag, known)| {
            *known == name && matches!(*tag, USER | GROUP) != qualifier.is_empty()
        });
        let (tag, _) = *tag?;
        let id = if qualifier.is_empty() {
            NO_ID
        } else {
            id.parse().ok()?
        };
        entries.push((tag, id, permissions_of(permissions)?));
    }
    if entries.is_empty() {
        return None;
    }
    // The kernel wants them in the order of their tags.
    entries.sort_unstable();
    let mut attribute = VERSION.to_le_bytes().to_vec();
    for (tag, id, permissions) in entries {
        attribute.extend(tag.to_le_bytes());
        attribute.extend(permissions.to_le_bytes());
        attribute.extend(id.to_le_bytes());
    }
    Some(attribute)
}

fn permissions_of(text: &str) -> Option<u16> {
    text.chars().try_fold(0, |bits, c| {
        Some(
            bits | match c {
                'r' => 4,
                'w' => 2,
                'x' => 1,
                '-' => 0,
                _ => return None,
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_of_other_programs_are_read() {
        let ours = from_text(b"user::rw-,user:7:r--,group::r-x,mask::rwx,other::---").unwrap();
        let star = b"other::---,mask::rwx,user:bin:r--:7,user::rw-,group::r-x";
        assert_eq!(from_text(star).unwrap(), ours);
        let gnu = b"user::rw-\nuser:7:r--\t\ngroup::r-x\nmask::rwx\nother::---\n";
        assert_eq!(from_text(gnu).unwrap(), ours);
        let none: [&[u8]; 6] = [
            b"",
            b"user:bin:r--",
            b"user",
            b"king::rwx",
            b"user::rq-",
            b"\xff",
        ];
        for none in none {
            assert_eq!(from_text(none), None);
        }
    }

    proptest! {
        #[test]
        fn every_acl_survives_its_text(
            users in proptest::collection::btree_map(0..u32::MAX, 0_u16..8, 0..5),
            groups in proptest::collection::btree_map(0..u32::MAX, 0_u16..8, 0..5),
            own in proptest::array::uniform4(0_u16..8),
        ) {
            let mut entries = vec![(1, NO_ID, own[0]), (4, NO_ID, own[1])];
            entries.extend([(0x10, NO_ID, own[2]), (0x20, NO_ID, own[3])]);
            entries.extend(users.iter().map(|(id, bits)| (USER, *id, *bits)));
            entries.extend(groups.iter().map(|(id, bits)| (GROUP, *id, *bits)));
            entries.sort_unstable();
            let mut attribute = VERSION.to_le_bytes().to_vec();
            for (tag, id, bits) in entries {
                attribute.extend(tag.to_le_bytes());
                attribute.extend(bits.to_le_bytes());
                attribute.extend(id.to_le_bytes());
            }
            let text = to_text(&attribute).unwrap();
            prop_assert_eq!(from_text(text.as_bytes()), Some(attribute));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = (to_text(&bytes), from_text(&bytes));
        }
    }
}
