use std::fs;
use std::path::Path;

use mainstay_records::{runtime_temporary_path, write_runtime};

use crate::{mode, names};

#[test]
fn a_runtime_write_replaces_the_file_and_keeps_it_private() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("record.json");
    for contents in [&b"a longer text"[..], b"short"] {
        write_runtime(&path, contents).unwrap();
        assert_eq!(fs::read(&path).unwrap(), contents);
        assert_eq!(mode(&path), 0o600);
    }
    assert_eq!(names(directory.path()), ["record.json"]);
}

#[test]
fn a_temporary_file_left_by_a_crash_is_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("record.json");
    fs::write(
        runtime_temporary_path(&path),
        "torn and longer than the record",
    )
    .unwrap();
    write_runtime(&path, b"whole").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"whole");
    assert_eq!(names(directory.path()), ["record.json"]);
}

#[test]
fn a_runtime_write_that_fails_leaves_target_and_directory_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("occupied");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("inside"), "kept").unwrap();
    assert!(write_runtime(&path, b"new").is_err());
    assert_eq!(names(directory.path()), ["occupied"]);
    assert!(write_runtime(Path::new("/"), b"").is_err());
}
