//! What a program and its cell are called when nobody says.

/// Eight of 36 signs: nobody meets the same twice.
pub(super) fn of_new_cell() -> String {
    let signs: String = (0..8).map(|_| fastrand::digit(36)).collect();
    format!("run-{signs}")
}

/// The last part of the program's path, as far as it can be a name. The same program has the same
/// name again: in a cell that stays, its runs do not pile up.
pub(super) fn of_program(path: Option<&String>) -> String {
    const MOST_BYTES: usize = 63;
    let base = path.and_then(|path| path.trim_end_matches('/').rsplit('/').next());
    let name: String = base
        .unwrap_or_default()
        .chars()
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => c,
            _ => '-',
        })
        .skip_while(|c| !c.is_ascii_alphanumeric())
        .take(MOST_BYTES)
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
    fn a_program_is_called_by_the_end_of_its_path() {
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
            assert_eq!(of_program(Some(&path.to_owned())), name, "{path:?}");
        }
    }

    proptest! {
        #[test]
        fn every_program_has_a_name_the_node_takes(path in ".{0,100}") {
            let name = of_program(Some(&path));
            prop_assert!((1..=63).contains(&name.len()));
            prop_assert!(name.starts_with(|c: char| c.is_ascii_alphanumeric()));
        }
    }

    #[test]
    fn new_cells_have_different_names() {
        assert_ne!(of_new_cell(), of_new_cell());
        assert_eq!(of_new_cell().len(), 12);
    }
}
