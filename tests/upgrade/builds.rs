//! Builds of other versions: copies of the binary under test whose build stamp is changed. What they
//! report as their version is what the stamp says; everything else is the same.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use mainstay_slots::{ImageWriter, SigningKey, Stamp};
use mainstay_testkit::binary;

/// The version under test.
pub(super) const OWN: &str = env!("CARGO_PKG_VERSION");
pub(super) const NEXT: &str = "0.2.0-next";

/// An image in a directory that goes with it.
pub(super) struct TestImage {
    _dir: tempfile::TempDir,
    pub(super) path: PathBuf,
}

impl TestImage {
    pub(super) fn of(binary: &Path) -> Self {
        Self::signed(binary, None)
    }

    pub(super) fn signed(binary: &Path, key: Option<&SigningKey>) -> Self {
        let dir = tempfile::TempDir::with_prefix("mainstay-image-").unwrap();
        let path = dir.path().join("mainstay.tar");
        // Compression is tested in the crate of images; here it would only take time.
        let mut writer = ImageWriter::of(binary).unwrap().uncompressed();
        if let Some(key) = key {
            writer = writer.signed_by(key);
        }
        writer
            .write(File::create(&path).unwrap(), dir.path())
            .unwrap();
        Self { _dir: dir, path }
    }

    /// The next version.
    pub(super) fn next() -> Self {
        Self::of(&version(NEXT, 1))
    }

    /// A version that is broken: `BROKEN` and these words.
    pub(super) fn broken(how: &str) -> Self {
        let dir = tempfile::TempDir::with_prefix("mainstay-broken-").unwrap();
        let path = dir.path().join("mainstay");
        let mut program = fs::read(env!("CARGO_BIN_EXE_broken-mainstay")).unwrap();
        program.extend_from_slice(format!("\nBROKEN {how}").as_bytes());
        fs::write(&path, program).unwrap();
        Self::of(&path)
    }

    pub(super) fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

/// The binary under test with another version and state format in its stamp. Kept beside the tests.
pub(super) fn version(version: &str, state_format: u64) -> PathBuf {
    let original = binary();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("versions");
    fs::create_dir_all(&directory).unwrap();
    let built = fs::metadata(&original).unwrap().modified().unwrap();
    let age = built
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos();
    let path = directory.join(format!("mainstay-{version}-{state_format}-{age}"));
    if path.exists() {
        return path;
    }
    // Those of earlier builds are large.
    let prefix = format!("mainstay-{version}-{state_format}-");
    for entry in fs::read_dir(&directory).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let mut program = fs::read(&original).unwrap();
    let stamp = Stamp::find(&program[..]).unwrap().unwrap();
    let old = stamp_bytes(&stamp.version, &stamp.sha, stamp.state_format);
    let new = stamp_bytes(version, &stamp.sha, state_format);
    let at = memchr::memmem::find(&program, &old).expect("the binary has its stamp");
    program[at..at + new.len()].copy_from_slice(&new);
    // Tests run beside each other.
    let mut temporary = tempfile::NamedTempFile::new_in(&directory).unwrap();
    temporary.write_all(&program).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(temporary.path(), mode).unwrap();
    temporary.persist(&path).unwrap();
    path
}

fn stamp_bytes(version: &str, sha: &str, state_format: u64) -> Vec<u8> {
    Stamp::new(version, sha, state_format).bytes().to_vec()
}
