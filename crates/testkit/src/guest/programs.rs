//! Programs for the guest: stripped, with the shared libraries they need.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::freshness::assert_fresh;
use crate::target_dir;

const BUILD: &str = "cargo build --workspace --all-targets";

/// The integration tests of a crate as they were last built, beside this test executable. Panics
/// if they are older than their sources.
pub fn tests_of(package: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let source = format!("crates/{package}/tests/it/main.rs");
    let built = own.parent().unwrap().read_dir().unwrap().flatten();
    let candidates = built.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        let dep_info = || std::fs::read_to_string(path.with_extension("d")).unwrap_or_default();
        name.starts_with("it-")
            && path.extension().is_none()
            && dep_info()
                .split_whitespace()
                .any(|file| file.ends_with(&source))
    });
    let newest = candidates.max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    let newest = newest.unwrap_or_else(|| {
        panic!(
            "the tests of {package} are not in {}; run {BUILD} first",
            target_dir().display()
        )
    });
    assert_fresh(&newest, BUILD);
    newest
}

/// The program without debug information: half as large or less, so the guest boots sooner.
pub fn stripped(program: &Path, dir: &Path) -> Vec<u8> {
    let copy = dir.join("stripped");
    let status = Command::new("strip")
        .args(["--strip-all", "-o"])
        .args([&copy, program])
        .status()
        .expect("cannot run strip; it comes with the linker, in binutils");
    assert!(status.success(), "strip {}", program.display());
    let content = std::fs::read(&copy).unwrap();
    std::fs::remove_file(copy).unwrap();
    content
}

/// The shared libraries of a program and their loader.
pub fn libraries(program: &Path) -> BTreeSet<PathBuf> {
    let output = Command::new("ldd").arg(program).output().unwrap();
    // ldd fails for a static program.
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!said.contains("not found"), "{}: {said}", program.display());
    let words = said.split_whitespace();
    let paths = words.filter(|word| word.starts_with('/') && !word.ends_with(':'));
    paths.map(PathBuf::from).collect()
}
