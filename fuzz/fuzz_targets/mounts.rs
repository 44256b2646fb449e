//! The table of mounts: never more mounts than lines, and names written as the kernel does come
//! back as they were.
#![no_main]

use std::os::unix::ffi::OsStrExt;

use libfuzzer_sys::fuzz_target;
use mainstay_node::mounts::parse;

fuzz_target!(|data: &[u8]| {
    let mounts = parse(data);
    assert!(mounts.len() <= data.split(|byte| *byte == b'\n').count());
    for mount in &mounts {
        let target = mount.target.as_os_str().as_bytes();
        let line = [b"x ".as_slice(), &escaped(target), b" x rw 0 0"].concat();
        let again = parse(&line);
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].target, mount.target);
    }
});

/// As the kernel writes what would break the table.
fn escaped(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in name {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => out.extend(format!("\\{byte:03o}").into_bytes()),
            plain => out.push(*plain),
        }
    }
    out
}
