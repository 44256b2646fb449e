//! Default names of a cell and its executable.

/// Returns a random name; eight characters of 36 make collisions unlikely.
pub(super) fn of_new_cell() -> String {
    let suffix: String = (0..8).map(|_| fastrand::digit(36)).collect();
    format!("run-{suffix}")
}

/// Returns the last part of the program's path, reduced to valid characters. Runs of one program
/// share a name, so that they do not accumulate in an existing cell.
pub(super) fn of_program(path: Option<&str>) -> String {
    const MAX_NAME_BYTES: usize = 63;
    let base = path.and_then(|path| path.trim_end_matches('/').rsplit('/').next());
    let name: String = base
        .unwrap_or_default()
        .chars()
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => c,
            _ => '-',
        })
        .skip_while(|c| !c.is_ascii_alphanumeric())
        .take(MAX_NAME_BYTES)
        .collect();
    match name.is_empty() {
        true => "run".to_owned(),
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_name_is_the_last_part_of_the_path() {
        for (path, name) in [
            ("sh", "sh"),
            ("/usr/bin/python3.11", "python3.11"),
            ("./my job", "my-job"),
            ("/opt/tool/", "tool"),
            ("", "run"),
            ("/", "run"),
            ("-_.", "run"),
            ("é", "run"),
        ] {
            assert_eq!(of_program(Some(path)), name, "{path:?}");
        }
    }

    proptest! {
        #[test]
        fn every_program_has_a_valid_name(path in ".{0,100}") {
            let name = of_program(Some(&path));
            prop_assert!((1..=63).contains(&name.len()));
            prop_assert!(name.starts_with(|c: char| c.is_ascii_alphanumeric()));
        }
    }

    #[test]
    fn new_cells_have_unique_names() {
        assert_ne!(of_new_cell(), of_new_cell());
        assert_eq!(of_new_cell().len(), 12);
    }
}
