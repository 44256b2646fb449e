//! Files that cargo and `scripts/setup-test` leave in the target directory.

use std::path::PathBuf;

/// The target directory this executable was built in.
pub fn target_dir() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.ancestors().nth(3).unwrap().to_owned()
}

/// The `mainstay` binary that was built with this test executable.
pub fn binary() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.ancestors().nth(2).unwrap().join("mainstay");
    assert!(
        path.exists(),
        "{} does not exist; run cargo build -p mainstay first",
        path.display()
    );
    path
}
