//! The mount table, as the kernel writes it in `/proc/<pid>/mountinfo`.
//!
//! This is the only parser of mount tables in the workspace. It undoes the kernel's escapes, accepts
//! any bytes and never fails: a line that is no mount is left out.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The device number of the file system, as `254:0`.
    pub device: String,
    /// The part of the file system that is mounted; `/` unless it is a bind mount.
    pub root: PathBuf,
    /// The mount point.
    pub target: PathBuf,
    /// The options of this mount alone, separated by commas, such as `rw,nodev`.
    pub flags: String,
    /// The type of the file system, such as `ext4` or `cgroup2`.
    pub fs_type: String,
    /// The device, or the name the file system gives itself.
    pub source: String,
    /// The options of the file system, separated by commas; for cgroup v1 its controllers too.
    pub options: String,
}

impl Mount {
    /// True if `flag` is one of the options of this mount alone.
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.split(',').any(|one| one == flag)
    }

    /// True if `option` is one of the file system's options.
    pub fn has_option(&self, option: &str) -> bool {
        self.options.split(',').any(|one| one == option)
    }
}

/// Reads the mounts of this process's mount namespace, in the kernel's order.
pub fn read() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// Reads the mounts as [`read`] does, each with the major and minor number of its device.
pub fn read_with_devices() -> io::Result<Vec<((u32, u32), Mount)>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    let lines = table.split(|byte| *byte == b'\n');
    Ok(lines
        .filter_map(|line| Some((device(line)?, parse_line(line)?)))
        .collect())
}

/// The device of a mount, the third word of its line: `8:1`.
fn device(line: &[u8]) -> Option<(u32, u32)> {
    let word = line.split(|byte| *byte == b' ').nth(2)?;
    let (major, minor) = std::str::from_utf8(word).ok()?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Parses lines as in `/proc/<pid>/mountinfo`.
pub fn parse(table: &[u8]) -> Vec<Mount> {
    table
        .split(|byte| *byte == b'\n')
        .filter_map(parse_line)
        .collect()
}

/// `36 35 0:30 / /mnt rw,relatime shared:9 - ext4 /dev/sda1 rw`
///
/// Any number of optional fields, such as `shared:9`, stand before the dash.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ');
    let mut before_dash = words.by_ref().take_while(|word| *word != b"-").skip(2);
    let device = before_dash.next()?;
    let (root, target) = (before_dash.next()?, before_dash.next()?);
    let flags = before_dash.next()?;
    before_dash.for_each(drop);
    let (fs_type, source, options) = (words.next()?, words.next()?, words.next()?);
    Some(Mount {
        device: text(device),
        root: path(root),
        target: path(target),
        flags: text(flags),
        fs_type: text(fs_type),
        source: text(source),
        options: text(options),
    })
}

fn path(word: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(word)))
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(word)).into_owned()
}

/// Undoes the octal escapes `\ooo`, in which the kernel writes space, tab, newline, backslash and
/// the hash sign.
fn unescape(word: &[u8]) -> Vec<u8> {
    let octal = |digits: &[u8]| {
        digits.iter().try_fold(0u8, |value, digit| match digit {
            b'0'..=b'7' => value.checked_mul(8)?.checked_add(digit - b'0'),
            _ => None,
        })
    };
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, tail)) = rest.split_first() {
        match tail.get(..3).and_then(octal) {
            Some(byte) if *first == b'\\' => {
                plain.push(byte);
                rest = &tail[3..];
            }
            _ => {
                plain.push(*first);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_root_of_this_process_is_mounted() {
        let mounts = read().unwrap();
        assert!(mounts.iter().any(|mount| mount.target == Path::new("/")));
    }

    #[test]
    fn every_mount_has_a_device() {
        let mounts = read_with_devices().unwrap();
        let root = mounts
            .iter()
            .rev()
            .find(|(_, mount)| mount.target == Path::new("/"));
        assert!(root.is_some());
        assert_eq!(
            device(b"36 35 8:17 / /mnt rw - ext4 /dev/sdb1 rw"),
            Some((8, 17))
        );
        for bad in ["", "36 35", "36 35 8 /", "36 35 8:x /", "36 35 :1 /"] {
            assert_eq!(device(bad.as_bytes()), None);
        }
    }

    #[test]
    fn this_process_has_as_many_mounts_as_the_kernel_lists() {
        // Other processes may mount something between the two reads.
        let matching = (0..100).any(|_| {
            let lines = std::fs::read_to_string("/proc/self/mounts").unwrap();
            read().unwrap().len() == lines.lines().count()
        });
        assert!(matching);
    }

    #[test]
    fn all_fields_are_read_whatever_the_number_of_optional_ones() {
        for optional in ["", "shared:9 ", "shared:9 master:3 propagate_from:2 "] {
            let line = format!(
                "24 22 0:23 /inner /sys/fs/cgroup/memory rw,relatime {optional}- cgroup none rw,memory\n"
            );
            let expected = Mount {
                device: "0:23".to_owned(),
                flags: "rw,relatime".to_owned(),
                root: PathBuf::from("/inner"),
                target: PathBuf::from("/sys/fs/cgroup/memory"),
                fs_type: "cgroup".to_owned(),
                source: "none".to_owned(),
                options: "rw,memory".to_owned(),
            };
            assert!(expected.has_option("memory") && !expected.has_option("mem"));
            assert!(expected.has_flag("relatime") && !expected.has_flag("memory"));
            assert_eq!(parse(line.as_bytes()), [expected]);
        }
    }

    #[test]
    fn escaped_names_are_read_as_they_are_and_other_lines_are_left_out() {
        let table = b"1 2 8:1 / /mnt/c\\011d\\134e rw - ext4 /dev/a\\040b\\043 rw\n\
            no mount\n1 2 8:1 / /mnt rw - ext4 /dev/sda\n1 2 8:1 / - ext4 /dev/sda rw\n";
        let mounts = parse(table);
        assert_eq!(mounts.len(), 1);
        assert_eq!(mounts[0].source, "/dev/a b#");
        assert_eq!(mounts[0].target, Path::new("/mnt/c\td\\e"));
    }

    #[test]
    fn what_is_no_octal_escape_stays() {
        for word in ["\\", "\\0", "\\08x", "\\777", "\\04"] {
            assert_eq!(unescape(word.as_bytes()), word.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn no_table_makes_the_parser_panic(table: Vec<u8>) {
            let _ = parse(&table);
        }

        #[test]
        fn every_mount_point_survives_the_kernels_escapes(target in "/[ -~\t\n]{0,30}") {
            let escaped: String = target
                .bytes()
                .map(|byte| match byte {
                    b' ' | b'\t' | b'\n' | b'\\' | b'#' => format!("\\{byte:03o}"),
                    plain => char::from(plain).to_string(),
                })
                .collect();
            let line = format!("1 2 8:1 / {escaped} rw - ext4 /dev/sda rw\n");
            let mounts = parse(line.as_bytes());
            prop_assert_eq!(&mounts[0].target, Path::new(&target));
        }
    }
}
