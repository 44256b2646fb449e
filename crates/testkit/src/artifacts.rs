//! Files that cargo and `scripts/setup-test` leave in the target directory.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::freshness::assert_fresh;

/// The target directory this executable was built in.
pub fn target_dir() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.ancestors().nth(3).unwrap().to_owned()
}

/// The `mainstay` binary that was built with this test executable. Panics if it is older than its
/// sources.
pub fn binary() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let checked = || {
        let own = std::env::current_exe().unwrap();
        let path = own.ancestors().nth(2).unwrap().join("mainstay");
        assert_fresh(&path, "cargo build -p mainstay");
        path
    };
    BINARY.get_or_init(checked).clone()
}

/// The `mainstay` binary of the older release in `tests/older-build.txt`; `scripts/older-build`
/// builds it.
pub fn older_binary() -> PathBuf {
    const OLDER_BUILD: &str = include_str!("../../../tests/older-build.txt");
    let commit = OLDER_BUILD.split_whitespace().nth(1).unwrap();
    target_dir()
        .join("tools/older")
        .join(commit)
        .join("mainstay")
}
