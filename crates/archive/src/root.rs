//! The directory that was archived. It is no member, because clients unpack into a directory that
//! exists; what is known of it is in the extra field of the gzip header, which others ignore.

use crate::{Content, Member, Time, pax};

/// Our subfield of the extra field.
const ID: [u8; 2] = *b"MS";
/// The extra field is shorter than 64 KiB, with four bytes before our part.
const MAX_BYTES: usize = 0xffff - 4;

/// Returns the extra field for an archive of this directory, without its attributes if they are too
/// long.
pub fn root_field(root: &Member) -> Vec<u8> {
    let mut records = Vec::new();
    for (keyword, number) in [("mode", root.mode), ("uid", root.uid), ("gid", root.gid)] {
        pax::push(
            &mut records,
            keyword.as_bytes(),
            number.to_string().as_bytes(),
        );
    }
    let time = pax::time(root.modified);
    pax::push(&mut records, b"mtime", time.as_bytes());
    let mut xattrs = Vec::new();
    for (name, value) in &root.xattrs {
        pax::push(&mut xattrs, &pax::xattr_keyword(name), value);
    }
    if records.len() + xattrs.len() <= MAX_BYTES {
        records.extend(xattrs);
    }
    let length = u16::try_from(records.len()).unwrap_or(u16::MAX);
    let mut field = ID.to_vec();
    field.extend(length.to_le_bytes());
    field.extend(records);
    field
}

/// Returns the directory that an extra field describes.
pub fn root_of_field(mut field: &[u8]) -> Option<Member> {
    while let [id0, id1, length0, length1, rest @ ..] = field {
        let length = usize::from(u16::from_le_bytes([*length0, *length1]));
        if [*id0, *id1] == ID {
            return parse(rest.get(..length)?);
        }
        field = rest.get(length..)?;
    }
    None
}

fn parse(records: &[u8]) -> Option<Member> {
    let mut root = Member {
        name: Vec::new(),
        content: Content::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
        modified: Time::default(),
        xattrs: Vec::new(),
    };
    for (keyword, value) in pax::parse(records).ok()? {
        match keyword {
            b"mode" => root.mode = pax::number::<u32>(value)? & 0o7777,
            b"uid" => root.uid = pax::number(value)?,
            b"gid" => root.gid = pax::number(value)?,
            b"mtime" => root.modified = pax::parse_time(value)?,
            keyword => {
                if let Some(name) = pax::xattr_name(keyword) {
                    root.xattrs.push((name, value.to_vec()));
                }
            }
        }
    }
    Some(root)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_root_survives(
            mode in 0_u32..0o10_000,
            uid: u32,
            gid: u32,
            seconds in -(1_i64 << 40)..1 << 40,
            nanoseconds in 0_u32..1_000_000_000,
            xattrs in proptest::collection::vec((any::<Vec<u8>>(), any::<Vec<u8>>()), 0..4),
            others in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let modified = Time { seconds, nanoseconds };
            let content = Content::Directory;
            let root = Member { name: Vec::new(), content, mode, uid, gid, modified, xattrs };
            let mut field = b"XX".to_vec();
            field.extend(u16::try_from(others.len()).unwrap().to_le_bytes());
            field.extend(others);
            field.extend(root_field(&root));
            prop_assert_eq!(root_of_field(&field), Some(root));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = root_of_field(&bytes);
        }
    }

    #[test]
    fn attributes_that_are_too_long_are_left_out() {
        let root = Member {
            xattrs: vec![(b"user.long".to_vec(), vec![7; 65_000]); 2],
            ..parse(b"").unwrap()
        };
        let field = root_field(&root);
        assert!(field.len() <= 0xffff);
        assert_eq!(root_of_field(&field).unwrap().xattrs, []);
    }
}
