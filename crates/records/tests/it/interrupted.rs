//! Writes that end in the middle: by an error, or by the death of the process.

use std::fs;

use mainstay_records::{is_temporary_of, remove_temporaries_of, write_durable, write_runtime};

use crate::child::{Kind, write_that_dies, write_that_fails};
use crate::names;

#[test]
fn a_failed_write_leaves_the_old_file_and_no_temporary_file() {
    for kind in [Kind::Durable, Kind::Runtime] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        write_durable(&path, b"old", 0o600).unwrap();
        write_that_fails(kind, &path);
        assert_eq!(fs::read(&path).unwrap(), b"old", "{kind:?}");
        assert_eq!(names(directory.path()), ["record"], "{kind:?}");
    }
}

#[test]
fn a_crash_in_the_middle_of_a_write_leaves_the_old_file_and_a_removable_temporary_file() {
    for kind in [Kind::Durable, Kind::Runtime] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        write_durable(&path, b"old", 0o600).unwrap();
        write_that_dies(kind, &path);
        assert_eq!(fs::read(&path).unwrap(), b"old", "{kind:?}");
        let left = names(directory.path());
        assert_eq!(left.len(), 2, "{kind:?}: {left:?}");
        let temporary = left.iter().find(|name| *name != "record").unwrap();
        assert!(is_temporary_of(temporary.as_ref(), "record"), "{temporary}");

        write_durable(&path, b"durable", 0o600).unwrap();
        write_runtime(&path, b"runtime").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"runtime");
        remove_temporaries_of(directory.path(), &["record"]).unwrap();
        assert_eq!(names(directory.path()), ["record"], "{kind:?}");
    }
}
