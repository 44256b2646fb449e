//! Refuses executables that are older than their sources: `cargo nextest run -p mainstay-tests`
//! builds the tests but not the binary that they run.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Panics unless `executable` is at least as new as every source in the dep-info file that cargo
/// leaves beside it.
///
/// `Cargo.lock` is no source: it changes with packages that this executable does not contain, and
/// cargo would not rebuild it then.
#[track_caller]
pub(crate) fn assert_fresh(executable: &Path, build: &str) {
    if let Err(reason) = check(executable) {
        panic!("{reason}; run {build} first");
    }
}

fn check(executable: &Path) -> Result<(), String> {
    let built =
        modified(executable).ok_or_else(|| format!("{} does not exist", executable.display()))?;
    let dep_info = executable.with_extension("d");
    let text = fs::read_to_string(&dep_info)
        .map_err(|error| format!("cannot read {}: {error}", dep_info.display()))?;
    let sources = sources(&text);
    if sources.is_empty() {
        return Err(format!("{} names no source", dep_info.display()));
    }
    let newer = sources.iter().find_map(|source| newer_than(source, built));
    match newer {
        Some(source) => Err(format!(
            "{} is stale: {} has changed since it was built",
            executable.display(),
            source.display()
        )),
        None => Ok(()),
    }
}

/// The prerequisites in a dep-info file. They are separated by spaces; a space in a path is
/// escaped. What the build script reads from git is left out: a commit alone changes no source.
fn sources(dep_info: &str) -> Vec<PathBuf> {
    let prerequisites = dep_info
        .lines()
        .filter_map(|line| line.split_once(": "))
        .flat_map(|(_, sources)| {
            let escaped = sources.replace("\\ ", "\0");
            let sources = escaped.split(' ').filter(|source| !source.is_empty());
            let sources = sources.map(|source| PathBuf::from(source.replace('\0', " ")));
            sources.collect::<Vec<_>>()
        });
    prerequisites
        .filter(|source| !source.components().any(|part| part.as_os_str() == ".git"))
        .collect()
}

/// A file that is newer, the source itself or one below it. A source that is gone is no reason to
/// refuse: its removal changes a file that named it.
fn newer_than(source: &Path, built: SystemTime) -> Option<PathBuf> {
    if source.is_dir() {
        let mut entries = fs::read_dir(source).into_iter().flatten().flatten();
        return entries.find_map(|entry| newer_than(&entry.path(), built));
    }
    (modified(source)? > built).then(|| source.to_owned())
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;

    /// An executable made from `main.rs` and the files in `proto/`, all of one age.
    struct Build {
        dir: TempDir,
        executable: PathBuf,
    }

    impl Build {
        fn new() -> Self {
            let dir = TempDir::with_prefix("with a space ").unwrap();
            let executable = dir.path().join("program");
            let at = dir.path().to_str().unwrap().replace(' ', "\\ ");
            let dep_info = format!("{at}/program: {at}/main.rs {at}/proto {at}/.git/HEAD\n");
            fs::create_dir_all(dir.path().join("proto/nested")).unwrap();
            fs::create_dir(dir.path().join(".git")).unwrap();
            fs::write(dir.path().join("program.d"), dep_info).unwrap();
            let build = Self { dir, executable };
            for file in ["program", "main.rs", "proto/nested/a.proto", ".git/HEAD"] {
                fs::write(build.path(file), "").unwrap();
                build.change(file, Duration::ZERO);
            }
            build
        }

        fn path(&self, file: &str) -> PathBuf {
            self.dir.path().join(file)
        }

        /// Sets the time of last modification, relative to that of all others.
        fn change(&self, file: &str, later: Duration) {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000) + later;
            let file = fs::File::options().append(true).open(self.path(file));
            file.unwrap().set_modified(time).unwrap();
        }

        fn refusal(&self) -> String {
            check(&self.executable).unwrap_err()
        }
    }

    #[test]
    fn an_executable_as_new_as_its_sources_is_fresh() {
        assert_eq!(check(&Build::new().executable), Ok(()));
    }

    #[test]
    fn a_changed_source_makes_it_stale_and_is_named() {
        for source in ["main.rs", "proto/nested/a.proto"] {
            let build = Build::new();
            build.change(source, Duration::from_millis(1));
            let refusal = build.refusal();
            assert!(refusal.contains("program is stale"), "{refusal}");
            assert!(refusal.contains(source), "{refusal}");
            build.change("program", Duration::from_millis(2));
            assert_eq!(check(&build.executable), Ok(()));
        }
    }

    #[test]
    fn a_commit_alone_does_not_make_it_stale() {
        let build = Build::new();
        build.change(".git/HEAD", Duration::from_millis(1));
        assert_eq!(check(&build.executable), Ok(()));
    }

    #[test]
    fn without_executable_or_dep_info_it_is_refused() {
        let build = Build::new();
        fs::write(build.path("program.d"), "").unwrap();
        assert!(build.refusal().ends_with("names no source"));
        fs::remove_file(build.path("program.d")).unwrap();
        assert!(build.refusal().starts_with("cannot read"));
        fs::remove_file(build.path("program")).unwrap();
        assert!(build.refusal().ends_with("does not exist"));
    }
}
