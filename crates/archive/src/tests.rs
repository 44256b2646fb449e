//! Round trips: of members through the format, and of an archive to a directory.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use proptest::prelude::*;

use crate::{Content, Member, Reader, Segment, Time, Writer, unpack};

fn file(name: &str, size: u64) -> Member {
    Member {
        name: name.as_bytes().to_vec(),
        content: Content::Regular { size },
        mode: 0o644,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        modified: Time::default(),
        xattrs: Vec::new(),
    }
}

fn of(name: &str, content: Content) -> Member {
    Member {
        content,
        ..file(name, 0)
    }
}

fn archive(members: &[(Member, &[u8])]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for (member, data) in members {
        writer.append(member, *data).unwrap();
    }
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> std::io::Result<Vec<(Member, Vec<u8>)>> {
    let mut reader = Reader::new(bytes);
    let mut all = Vec::new();
    while let Some(member) = reader.next_member()? {
        let mut data = Vec::new();
        reader.read_to_end(&mut data)?;
        all.push((member, data));
    }
    Ok(all)
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let short = proptest::collection::vec(1_u8..=255, 1..20);
    let long = proptest::collection::vec(1_u8..=255, 80..400);
    prop_oneof![short, long].prop_filter("no directory", |name| !name.ends_with(b"/"))
}

fn content() -> impl Strategy<Value = (Content, Vec<u8>)> {
    let data = || proptest::collection::vec(any::<u8>(), 0..1500);
    let device = || (0_u32..1 << 12, 0_u32..1 << 20);
    let without = |content| (content, Vec::new());
    prop_oneof![
        data().prop_map(|data| {
            let size = data.len() as u64;
            (Content::Regular { size }, data)
        }),
        (data(), 1_u64..1 << 50, 0_u64..1 << 50).prop_map(|(data, offset, tail)| {
            let length = data.len() as u64;
            let size = offset + length + tail;
            let segments = match length {
                0 => Vec::new(),
                length => vec![Segment { offset, length }],
            };
            (Content::Sparse { size, segments }, data)
        }),
        Just(without(Content::Directory)),
        name().prop_map(move |target| without(Content::Symlink { target })),
        name().prop_map(move |target| without(Content::HardLink { target })),
        Just(without(Content::Fifo)),
        device().prop_map(move |(major, minor)| without(Content::CharDevice { major, minor })),
        device().prop_map(move |(major, minor)| without(Content::BlockDevice { major, minor })),
    ]
}

fn member() -> impl Strategy<Value = (Member, Vec<u8>)> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..300);
    let xattrs = proptest::collection::vec((bytes(), bytes()), 0..4);
    let time = (-(1_i64 << 40)..1 << 40, 0_u32..1_000_000_000);
    let owner = (any::<u32>(), any::<u32>());
    (name(), content(), 0_u32..0o10_000, owner, time, xattrs).prop_map(
        |(name, (content, data), mode, (uid, gid), (seconds, nanoseconds), xattrs)| {
            let modified = Time {
                seconds,
                nanoseconds,
            };
            let member = Member {
                name,
                content,
                mode,
                uid,
                gid,
                modified,
                xattrs,
            };
            (member, data)
        },
    )
}

proptest! {
    #[test]
    fn every_member_survives_the_format(members in proptest::collection::vec(member(), 0..5)) {
        let mut writer = Writer::new(Vec::new());
        for (member, data) in &members {
            writer.append(member, &data[..]).unwrap();
        }
        let bytes = writer.finish().unwrap();
        prop_assert!(bytes.len().is_multiple_of(512));
        prop_assert_eq!(read(&bytes).unwrap(), members);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes: Vec<u8>, members in proptest::collection::vec(member(), 1..3), at: usize, bit in 0..8) {
        let _ = read(&bytes);
        let mut writer = Writer::new(Vec::new());
        for (member, data) in &members {
            writer.append(member, &data[..]).unwrap();
        }
        let mut damaged = writer.finish().unwrap();
        let at = at % damaged.len();
        damaged[at] ^= 1_u8 << bit;
        let _ = read(&damaged);
        damaged.truncate(at);
        let _ = read(&damaged);
    }
}

#[test]
fn an_archive_cut_short_is_an_error() {
    let whole = archive(&[(file("a", 5), b"hello")]);
    for length in [0, 100, 512, 600, 1024] {
        read(&whole[..length]).unwrap_err();
    }
    assert_eq!(read(&whole).unwrap().len(), 1);
}

#[test]
fn everything_a_file_has_is_restored() {
    let dir = tempfile::tempdir().unwrap();
    let acl = crate::acl::from_text(b"user::rw-,user:7:r--,group::r--,mask::r--,other::---");
    let member = Member {
        mode: 0o640,
        modified: Time {
            seconds: -2,
            nanoseconds: 500_000_000,
        },
        xattrs: vec![
            (b"user.lines".to_vec(), b"a\nb\0c".to_vec()),
            (crate::acl::ACCESS.to_vec(), acl.clone().unwrap()),
        ],
        ..file("d/file", 5)
    };
    let directory = Member {
        mode: 0o2750,
        modified: Time {
            seconds: -86_400,
            nanoseconds: 0,
        },
        ..of("d", Content::Directory)
    };
    let link = of(
        "d/z-link",
        Content::HardLink {
            target: b"d/file".to_vec(),
        },
    );
    let sparse = of(
        "d/sparse",
        Content::Sparse {
            size: 1 << 30,
            segments: vec![Segment {
                offset: 1 << 20,
                length: 4,
            }],
        },
    );
    let bytes = archive(&[
        (directory, b""),
        (member, b"hello"),
        (sparse, b"data"),
        (link, b""),
        (of("d/fifo", Content::Fifo), b""),
    ]);
    let report = unpack(&bytes[..], dir.path(), None).unwrap();
    assert!(report.is_complete(), "{:?}", report.missing());
    assert_eq!(report.not_restored(), None);

    let path = dir.path().join("d/file");
    let about = std::fs::metadata(&path).unwrap();
    assert_eq!((about.mtime(), about.mtime_nsec()), (-2, 500_000_000));
    assert_eq!((about.mode() & 0o7777, about.nlink()), (0o640, 2));
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(&path, "user.lines", &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"a\nb\0c");
    let length = rustix::fs::getxattr(&path, crate::acl::ACCESS, &mut value[..]).unwrap();
    assert_eq!(&value[..length], acl.unwrap());
    let about = std::fs::metadata(dir.path().join("d")).unwrap();
    assert_eq!((about.mtime(), about.mode() & 0o7777), (-86_400, 0o2750));
    let sparse = std::fs::metadata(dir.path().join("d/sparse")).unwrap();
    assert_eq!(sparse.len(), 1 << 30);
    assert!(sparse.blocks() * 512 < 1 << 21);
}

#[test]
fn hostile_members_are_dropped_and_the_others_unpacked() {
    let outside = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("victim"), "untouched").unwrap();
    symlink(outside.path(), dir.path().join("there")).unwrap();
    symlink(outside.path().join("victim"), dir.path().join("replaced")).unwrap();
    let up = outside.path().as_os_str().as_bytes().to_vec();
    let link = |name, target: &[u8]| {
        of(
            name,
            Content::Symlink {
                target: target.to_vec(),
            },
        )
    };
    let hard = |name, target: &[u8]| {
        of(
            name,
            Content::HardLink {
                target: target.to_vec(),
            },
        )
    };
    let absolute = outside.path().join("absolute").display().to_string();
    let hostile = [
        (file("../up", 1), &b"x"[..]),
        (file("a/../../up", 1), b"x"),
        (file(&absolute, 1), b"x"),
        (file("there/victim", 1), b"x"),
        (of("there/dir", Content::Directory), b""),
        (of("there", Content::Directory), b""),
        (hard("stolen", b"there/victim"), b""),
        (hard("stolen", b"../victim"), b""),
        (hard("stolen", b"/etc/passwd"), b""),
        (hard("stolen", b"."), b""),
        (hard("stolen", b"stolen"), b""),
        (file("", 1), b"x"),
        (file("victim-link/in", 1), b"x"),
    ];
    let mut members = vec![(link("victim-link", &up), &b""[..])];
    members.extend(hostile.iter().map(|(member, data)| (member.clone(), *data)));
    members.push((file("replaced", 3), b"new"));
    members.push((file("good", 4), b"good"));
    let report = unpack(&archive(&members)[..], dir.path(), None).unwrap();
    assert!(!report.is_complete());
    assert_eq!(
        report.missing().len(),
        hostile.len(),
        "{:?}",
        report.missing()
    );
    assert_eq!(std::fs::read(dir.path().join("good")).unwrap(), b"good");
    assert_eq!(std::fs::read(dir.path().join("replaced")).unwrap(), b"new");
    let victim = std::fs::read(outside.path().join("victim")).unwrap();
    assert_eq!(victim, b"untouched");
    let names: Vec<_> = std::fs::read_dir(outside.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(!Path::new(&absolute).exists());
}

#[test]
fn special_bits_need_the_owner_they_were_set_for() {
    let dir = tempfile::tempdir().unwrap();
    let member = Member {
        mode: 0o6755,
        // No valid owner: nobody can restore it.
        uid: u32::MAX,
        ..file("program", 0)
    };
    let report = unpack(&archive(&[(member, b"")])[..], dir.path(), None).unwrap();
    let said = report.not_restored().unwrap();
    assert!(said.contains("1 owner, 1 set-user-ID"), "{said}");
    let about = std::fs::metadata(dir.path().join("program")).unwrap();
    assert_eq!(about.mode() & 0o7777, 0o755);
}
