use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use mainstay_identity::write_atomic;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[test]
fn contents_and_mode_are_as_asked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    write_atomic(&path, b"one", 0o600).unwrap();
    assert_eq!(
        (fs::read(&path).unwrap().as_slice(), mode(&path)),
        (&b"one"[..], 0o600)
    );
    write_atomic(&path, b"two", 0o644).unwrap();
    assert_eq!(
        (fs::read(&path).unwrap().as_slice(), mode(&path)),
        (&b"two"[..], 0o644)
    );
    assert_eq!(entries(directory.path()), 1);
}

#[test]
fn a_failed_write_leaves_the_target_and_no_litter() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("occupied");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("inside"), "kept").unwrap();
    assert!(write_atomic(&path, b"new", 0o600).is_err());
    assert_eq!(fs::read(path.join("inside")).unwrap(), b"kept");
    assert_eq!(entries(directory.path()), 1);
}

#[test]
fn a_path_that_names_no_file_is_an_error() {
    assert!(write_atomic(Path::new("/"), b"", 0o600).is_err());
    assert!(write_atomic(Path::new(""), b"", 0o600).is_err());
}

#[test]
fn readers_never_see_a_part() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let contents = |letter: u8| vec![letter; 64 * 1024];
    write_atomic(&path, &contents(b'a'), 0o600).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for letter in (b'a'..=b'z').cycle().take(100) {
                write_atomic(&path, &contents(letter), 0o600).unwrap();
            }
        });
        while !writer.is_finished() {
            let read = fs::read(&path).unwrap();
            assert_eq!(read, contents(read[0]));
        }
    });
}
