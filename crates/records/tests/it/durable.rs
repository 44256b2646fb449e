use std::fs;
use std::path::Path;

use mainstay_records::write_durable;

use crate::{mode, names};

#[test]
fn a_durable_write_sets_contents_and_mode() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    for (contents, wanted) in [(&b"one"[..], 0o600), (b"two", 0o644)] {
        write_durable(&path, contents, wanted).unwrap();
        assert_eq!(fs::read(&path).unwrap(), contents);
        assert_eq!(mode(&path), wanted);
    }
    assert_eq!(names(directory.path()), ["file"]);
}

#[test]
fn a_write_that_cannot_be_renamed_leaves_target_and_directory_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("occupied");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("inside"), "kept").unwrap();
    assert!(write_durable(&path, b"new", 0o600).is_err());
    assert_eq!(fs::read(path.join("inside")).unwrap(), b"kept");
    assert_eq!(names(directory.path()), ["occupied"]);
}

#[test]
fn a_path_without_a_file_name_is_an_error() {
    for path in ["/", "", ".."] {
        let error = write_durable(Path::new(path), b"", 0o600).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{path:?}");
    }
}

#[test]
fn the_temporary_file_of_another_process_with_the_same_pid_is_stepped_over() {
    let directory = tempfile::tempdir().unwrap();
    let pid = std::process::id();
    let stale: Vec<String> = (0..200)
        .map(|number| format!(".file.{pid}-{number}.tmp"))
        .collect();
    for name in &stale {
        fs::write(directory.path().join(name), "stale").unwrap();
    }
    let path = directory.path().join("file");
    write_durable(&path, b"new", 0o600).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    for name in stale {
        assert_eq!(fs::read(directory.path().join(name)).unwrap(), b"stale");
    }
}

#[test]
fn readers_see_the_old_or_the_new_contents_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let contents = |letter: u8| vec![letter; 64 * 1024];
    write_durable(&path, &contents(b'a'), 0o600).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for letter in (b'a'..=b'z').cycle().take(100) {
                write_durable(&path, &contents(letter), 0o600).unwrap();
            }
        });
        while !writer.is_finished() {
            let read = fs::read(&path).unwrap();
            assert_eq!(read, contents(read[0]));
        }
    });
}
