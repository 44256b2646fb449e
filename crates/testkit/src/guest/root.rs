//! The root file system of a guest: busybox, the scripts of the session, and the programs under test.

use std::collections::BTreeSet;
use std::path::Path;

use super::archive::Archive;
use super::programs;

const DIRECTORIES: &[&str] = &["new", "dev", "proc", "root", "run", "sys", "tmp"];
/// Comes before the directory of busybox in PATH.
const PROGRAMS: &str = "usr/local/bin";
const SCRIPTS: &[(&str, &str)] = &[
    ("session", include_str!("root/session")),
    ("start", include_str!("root/start")),
    ("stop", include_str!("root/stop")),
];
const SETTINGS: &[(&str, &str)] = &[
    ("etc/group", "root:x:0:\n"),
    ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
];
/// Statically linked.
const BUSYBOX: &str = "/bin/busybox";
/// busybox has one that polls once a second and exits that much later than its program.
const TIMEOUT: &str = "/usr/bin/timeout";

/// Packs it, with these programs under these names.
pub fn packed(tried: &[(&str, &Path)], scratch: &Path) -> Vec<u8> {
    let mut archive = Archive::default();
    for directory in DIRECTORIES {
        archive.directory(Path::new(directory));
    }
    // The kernel opens it as standard input and output of init, which has no other before it mounts /dev.
    archive.character_device(Path::new("dev/console"), 0o600, (5, 1));
    for (path, text) in SETTINGS {
        archive.file(Path::new(path), 0o644, text.as_bytes());
    }
    let init = include_str!("root/init");
    archive.file(Path::new("init"), 0o755, init.as_bytes());
    for (name, script) in SCRIPTS {
        archive.file(&Path::new(PROGRAMS).join(name), 0o755, script.as_bytes());
    }
    let busybox = std::fs::read(BUSYBOX)
        .expect("cannot read /bin/busybox; scripts/setup-test installs busybox-static");
    archive.file(Path::new("bin/busybox"), 0o755, &busybox);
    let mut libraries = BTreeSet::new();
    for (name, program) in tried.iter().chain(&[("timeout", Path::new(TIMEOUT))]) {
        let content = programs::stripped(program, scratch);
        archive.file(&Path::new(PROGRAMS).join(name), 0o755, &content);
        libraries.extend(programs::libraries(program));
    }
    for library in libraries {
        archive.file(&library, 0o755, &std::fs::read(&library).unwrap());
    }
    archive.finish()
}
