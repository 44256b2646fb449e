//! A directory for files and a runtime, each created once per process.
//!
//! The directory is below `TMPDIR`, which should be on tmpfs, and is not removed: the fuzzing engine
//! kills the process.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// An empty directory, the same one each time and emptied each time.
#[derive(Debug)]
pub struct Scratch(PathBuf);

static ROOT: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    tempfile::Builder::new()
        .prefix("mainstay-fuzz-")
        .tempdir()
        .expect("a temporary directory can be made")
});

impl Scratch {
    /// Empties the directory. Only one may be in use at a time.
    pub fn fresh() -> Self {
        let path = ROOT.path().join("scratch");
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("the scratch directory can be made");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file that only its owner may read, and the directories above it.
    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        let parent = path.parent().unwrap_or(&self.0);
        fs::create_dir_all(parent).expect("the directory can be made");
        fs::write(&path, bytes).expect("the file can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the mode can be set");
        path
    }
}

/// Runs a future to its end.
pub fn block_on<F: Future>(future: F) -> F::Output {
    static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime can be made")
    });
    RUNTIME.block_on(future)
}
