//! The mount table: never more mounts than lines, and escaped mount points are read as they were.
#![no_main]

use std::os::unix::ffi::OsStrExt;

use libfuzzer_sys::fuzz_target;
use mainstay_mounts::parse;

fuzz_target!(|data: &[u8]| {
    let mounts = parse(data);
    assert!(mounts.len() <= data.split(|byte| *byte == b'\n').count());
    for mount in &mounts {
        let target = mount.target.as_os_str().as_bytes();
        let line = [b"1 2 8:1 / ".as_slice(), &escaped(target), b" rw - x x rw"].concat();
        let again = parse(&line);
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].target, mount.target);
    }
});

/// Escapes a name as the kernel does.
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
