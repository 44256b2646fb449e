//! The architecture of an ELF executable, by its header.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

const HEADER_BYTES: usize = 20;
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const EXECUTABLE: u16 = 2;
const SHARED_OBJECT: u16 = 3;

/// The architecture of this build, as OCI names it.
pub fn own_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The architecture of an executable, as OCI names it; `None` if the file is no ELF executable of
/// an architecture that Mainstay is built for.
pub(crate) fn architecture(file: &File) -> io::Result<Option<&'static str>> {
    let mut header = [0; HEADER_BYTES];
    match file.read_exact_at(&mut header, 0) {
        Ok(()) => Ok(of_header(&header)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn of_header(header: &[u8; HEADER_BYTES]) -> Option<&'static str> {
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    if !header.starts_with(b"\x7fELF") || header[4] != CLASS_64 || header[5] != LITTLE_ENDIAN {
        return None;
    }
    // A position-independent executable has the type of a shared object.
    if ![EXECUTABLE, SHARED_OBJECT].contains(&half(16)) {
        return None;
    }
    match half(18) {
        62 => Some("amd64"),
        183 => Some("arm64"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_has_this_architecture() {
        let own = File::open("/proc/self/exe").unwrap();
        assert_eq!(architecture(&own).unwrap(), Some(own_architecture()));
    }

    #[test]
    fn scripts_and_short_files_have_none() {
        for bytes in [
            &b""[..],
            b"\x7fELF",
            b"#!/bin/sh\necho this is no executable\n",
        ] {
            let mut file = tempfile::tempfile().unwrap();
            io::Write::write_all(&mut file, bytes).unwrap();
            assert_eq!(architecture(&file).unwrap(), None);
        }
    }
}
