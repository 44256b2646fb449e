//! Names of temporary files, and the removal of those that a crash left.
//!
//! A durable write uses `.<name>.<pid>-<number>.tmp`, which no two writers share; a runtime write
//! uses `<name>.new`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const DURABLE_SUFFIX: &str = ".tmp";
const RUNTIME_SUFFIX: &str = ".new";

/// The temporary file name of the durable write number `number` of process `pid` to `name`.
pub(crate) fn durable_name(name: &OsStr, pid: u32, number: u64) -> OsString {
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{pid}-{number}{DURABLE_SUFFIX}"));
    temporary
}

/// The file that [`write_runtime`](crate::write_runtime) writes before it renames it to `path`.
pub fn runtime_temporary_path(path: &Path) -> PathBuf {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(RUNTIME_SUFFIX);
    PathBuf::from(temporary)
}

/// True if `file_name` is the name of a temporary file of this crate's writers.
pub fn is_temporary(file_name: &OsStr) -> bool {
    target_of(file_name).is_some()
}

/// True if `file_name` is the name of a temporary file written for the file `name`.
pub fn is_temporary_of(file_name: &OsStr, name: &str) -> bool {
    target_of(file_name).is_some_and(|target| target == name.as_bytes())
}

/// Removes the temporary files that interrupted writes to the files `names` left in `directory`.
///
/// The caller makes sure that nobody writes to these files meanwhile, usually by a lock: the
/// temporary file of a write that goes on would be removed too, and that write would fail.
pub fn remove_temporaries_of(directory: &Path, names: &[&str]) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let file_name = entry?.file_name();
        if names.iter().any(|name| is_temporary_of(&file_name, name)) {
            fs::remove_file(directory.join(file_name))?;
        }
    }
    Ok(())
}

/// The name of the file that a temporary file was to become.
fn target_of(file_name: &OsStr) -> Option<&[u8]> {
    let bytes = file_name.as_encoded_bytes();
    let target = durable_target(bytes).or_else(|| bytes.strip_suffix(RUNTIME_SUFFIX.as_bytes()));
    target.filter(|target| !target.is_empty())
}

fn durable_target(bytes: &[u8]) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(b".")?;
    let rest = rest.strip_suffix(DURABLE_SUFFIX.as_bytes())?;
    let dot = rest.iter().rposition(|byte| *byte == b'.')?;
    let (target, [_, writer @ ..]) = rest.split_at_checked(dot)? else {
        return None;
    };
    let dash = writer.iter().position(|byte| *byte == b'-')?;
    let (pid, number) = (&writer[..dash], &writer[dash + 1..]);
    let is_number = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    (is_number(pid) && is_number(number)).then_some(target)
}
