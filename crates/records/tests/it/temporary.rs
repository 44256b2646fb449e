use std::ffi::OsStr;
use std::fs;

use mainstay_records::{
    is_temporary, is_temporary_of, remove_temporaries_of, runtime_temporary_path,
};
use proptest::prelude::*;

use crate::names;

#[test]
fn only_exact_temporary_names_are_recognised() {
    for name in [".ca.key.12-0.tmp", "ca.key.new"] {
        assert!(is_temporary(name.as_ref()), "{name}");
        assert!(is_temporary_of(name.as_ref(), "ca.key"), "{name}");
        assert!(!is_temporary_of(name.as_ref(), "ca"), "{name}");
        assert!(!is_temporary_of(name.as_ref(), "key"), "{name}");
    }
    for name in [
        "ca.key",
        ".ca.key",
        "ca.key.tmp",
        ".ca.key.tmp",
        ".ca.key.-.tmp",
        ".ca.key.12-.tmp",
        ".ca.key.12-x.tmp",
        ".ca.key.12-0.tmpx",
        ".12-0.tmp",
        "..12-0.tmp",
        ".new",
        "",
        ".",
        "..",
    ] {
        assert!(!is_temporary(name.as_ref()), "{name}");
    }
}

#[test]
fn only_temporary_files_of_the_named_files_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "a",
        "b",
        ".a.1-0.tmp",
        "a.new",
        ".b.1-0.tmp",
        "b.new",
        "a.tmp",
    ] {
        fs::write(directory.path().join(name), "").unwrap();
    }
    remove_temporaries_of(directory.path(), &["a", "c"]).unwrap();
    assert_eq!(
        names(directory.path()),
        [".b.1-0.tmp", "a", "a.tmp", "b", "b.new"]
    );
}

proptest! {
    #[test]
    fn every_temporary_name_belongs_to_its_target(
        name in "[^/\0]{1,40}",
        pid: u32,
        number: u64,
    ) {
        let durable = format!(".{name}.{pid}-{number}.tmp");
        prop_assert!(is_temporary_of(durable.as_ref(), &name));
        let runtime = runtime_temporary_path(name.as_ref());
        prop_assert!(is_temporary(runtime.as_os_str()));
    }

    #[test]
    fn no_name_makes_the_recogniser_panic(name: Vec<u8>) {
        use std::os::unix::ffi::OsStrExt as _;
        let _ = is_temporary(OsStr::from_bytes(&name));
    }
}
