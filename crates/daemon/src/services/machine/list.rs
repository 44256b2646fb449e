//! `List`: the entries of a directory, or of the tree below it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use bytes::Bytes;
use mainstay_api::machine::list_request::Type;
use mainstay_api::machine::{FileInfo, ListRequest, Xattr};
use mainstay_node::files::{Entry, Facts, Kind, Walk, WalkOptions};
use tonic::Status;

use crate::rpc::{Answers, produce_many, status};
use crate::text::{path_from_wire, path_to_wire, shorten, shown_path};

/// Longer paths are refused at once; the kernel accepts 4,096 bytes, of which each may be escaped.
const MAX_PATH_BYTES: usize = 64 << 10;

/// An entry with more than this in its extended attributes ends its batch: an entry may have 1 MiB of
/// them, and batches wait for their reader.
const LARGE_XATTRS_BYTES: usize = 8 << 10;

/// Refuses a path that would only take memory for as long as the call goes on.
pub(super) fn check_length(path: &str) -> Result<(), Status> {
    if path.len() > MAX_PATH_BYTES {
        return Err(Status::invalid_argument(format!(
            "{:?} is not a path: it has {} bytes",
            shorten(path),
            path.len()
        )));
    }
    Ok(())
}

pub(super) fn stream(request: &ListRequest) -> Result<Answers<FileInfo>, Status> {
    let types = types(request)?;
    check_length(&request.root)?;
    let root = match request.root.as_str() {
        "" => PathBuf::from("/"),
        root => PathBuf::from("/").join(path_from_wire(root)),
    };
    let options = WalkOptions {
        depth: depth(request),
        xattrs: request.report_xattrs,
    };
    let what = shown_path(&root);
    produce_many(what, move |entries| {
        let walk = match Walk::new(&root, options) {
            Ok(walk) => walk,
            Err(error) => return entries.fail(status::of_file(&root, &error)),
        };
        for entry in walk {
            entries.keep_alive()?;
            if wanted(&types, &entry) {
                let info = info(entry);
                let xattrs: usize = info.xattrs.iter().map(|xattr| xattr.data.len()).sum();
                entries.add(info)?;
                if xattrs > LARGE_XATTRS_BYTES {
                    entries.give_all()?;
                }
            }
        }
        Ok(())
    })
}

/// Returns the number of levels to list. Some clients send 0 for no limit, others -1.
fn depth(request: &ListRequest) -> Option<u32> {
    match (request.recurse, u32::try_from(request.recursion_depth)) {
        (false, _) => Some(1),
        (true, Ok(0) | Err(_)) => None,
        (true, Ok(levels)) => Some(levels),
    }
}

fn types(request: &ListRequest) -> Result<BTreeSet<i32>, Status> {
    match request
        .types
        .iter()
        .find(|kind| Type::try_from(**kind).is_err())
    {
        Some(unknown) => Err(Status::invalid_argument(format!(
            "type {unknown} is unknown; 0 is a regular file, 1 a directory, 2 a symbolic link"
        ))),
        None => Ok(request.types.iter().copied().collect()),
    }
}

/// An entry that failed is always included, whichever type it would have.
fn wanted(types: &BTreeSet<i32>, entry: &Entry) -> bool {
    let Ok(facts) = &entry.facts else { return true };
    let kind = match facts.kind {
        Kind::Regular => Type::Regular,
        Kind::Directory => Type::Directory,
        Kind::Symlink => Type::Symlink,
        Kind::Other => return types.is_empty(),
    };
    types.is_empty() || types.contains(&i32::from(kind))
}

fn info(entry: Entry) -> FileInfo {
    let name = path_to_wire(&entry.path);
    let relative_name = path_to_wire(&entry.relative);
    match entry.facts {
        Ok(facts) => FileInfo {
            name,
            relative_name,
            mode: go_mode(facts.mode),
            size: facts.size,
            modified: facts.modified,
            is_dir: facts.kind == Kind::Directory,
            link: link(&facts),
            uid: facts.uid,
            gid: facts.gid,
            xattrs: facts.xattrs.into_iter().map(xattr).collect(),
            ..FileInfo::default()
        },
        Err(error) => FileInfo {
            name,
            relative_name,
            error: error.to_string(),
            ..FileInfo::default()
        },
    }
}

fn link(facts: &Facts) -> String {
    facts
        .link
        .as_ref()
        .map(|target| path_to_wire(target))
        .unwrap_or_default()
}

fn xattr((name, data): (Vec<u8>, Vec<u8>)) -> Xattr {
    Xattr {
        name: mainstay_paths::to_wire(&name).into_owned(),
        data: Bytes::from(data),
    }
}

/// Converts the kernel's mode to the bits that clients of this API know.
fn go_mode(mode: u32) -> u32 {
    let kind = match mode & 0o170_000 {
        0o040_000 => 1 << 31,
        0o120_000 => 1 << 27,
        0o060_000 => 1 << 26,
        0o020_000 => 1 << 26 | 1 << 21,
        0o010_000 => 1 << 25,
        0o140_000 => 1 << 24,
        _ => 0,
    };
    let bit = |kernel: u32, wire: u32| if mode & kernel == 0 { 0 } else { wire };
    mode & 0o777 | kind | bit(0o4000, 1 << 23) | bit(0o2000, 1 << 22) | bit(0o1000, 1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_the_bits_clients_know() {
        assert_eq!(go_mode(0o100_644), 0o644);
        assert_eq!(go_mode(0o040_755), 1 << 31 | 0o755);
        assert_eq!(go_mode(0o120_777), 1 << 27 | 0o777);
        assert_eq!(go_mode(0o060_660), 1 << 26 | 0o660);
        assert_eq!(go_mode(0o020_666), 1 << 26 | 1 << 21 | 0o666);
        assert_eq!(go_mode(0o010_600), 1 << 25 | 0o600);
        assert_eq!(go_mode(0o140_755), 1 << 24 | 0o755);
        assert_eq!(go_mode(0o104_755), 1 << 23 | 0o755);
        assert_eq!(go_mode(0o102_755), 1 << 22 | 0o755);
        assert_eq!(go_mode(0o041_777), 1 << 31 | 1 << 20 | 0o777);
    }
}
