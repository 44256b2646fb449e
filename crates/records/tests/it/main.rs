//! The crate's guarantees, through its public API.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod child;
mod durable;
mod interrupted;
mod json;
mod runtime;
mod temporary;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// The names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
