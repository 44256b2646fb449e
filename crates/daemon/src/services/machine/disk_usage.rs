//! `DiskUsage`: the space that directories take on disk.

use std::path::{Path, PathBuf};

use mainstay_api::machine::{DiskUsageInfo, DiskUsageRequest};
use mainstay_node::files::{Usage, UsageOptions, UsageWalk};
use tonic::Status;

use super::list::check_length;
use crate::rpc::{Answers, Gathering, Gone, produce_many};
use crate::text::{path_from_wire, path_to_wire, shown_path};

/// Paths of one call. They stay in memory until its end, and an empty one takes two bytes of the
/// request.
const MAX_PATHS: usize = 4096;

pub(super) fn stream(request: &DiskUsageRequest) -> Result<Answers<DiskUsageInfo>, Status> {
    let options = UsageOptions {
        depth: depth(request.recursion_depth)?,
        files: request.all,
    };
    let Some(first) = request.paths.first() else {
        return Err(Status::invalid_argument(
            "no path is named; set paths, such as \"/\"",
        ));
    };
    let count = request.paths.len();
    if count > MAX_PATHS {
        return Err(Status::invalid_argument(format!(
            "the call names {count} paths; the most is {MAX_PATHS}"
        )));
    }
    let absolute = |path: &String| {
        check_length(path)?;
        Ok::<_, Status>(Path::new("/").join(path_from_wire(path)))
    };
    let what = shown_path(&absolute(first)?);
    let paths = request.paths.iter().map(absolute);
    let paths: Vec<PathBuf> = paths.collect::<Result<_, _>>()?;
    let threshold = request.threshold;
    produce_many(what, move |infos| {
        paths
            .iter()
            .try_for_each(|path| add_up(path, options, threshold, infos))
    })
}

/// Converts a depth that counts the path itself, so that 0 can mean no limit.
fn depth(recursion_depth: i32) -> Result<Option<u32>, Status> {
    match u32::try_from(recursion_depth) {
        Ok(levels) => Ok(levels.checked_sub(1)),
        Err(_) => Err(Status::invalid_argument(
            "recursion_depth is negative; 0 means no limit, 1 only the path itself",
        )),
    }
}

fn add_up(
    path: &Path,
    options: UsageOptions,
    threshold: i64,
    infos: &mut Gathering<'_, DiskUsageInfo>,
) -> Result<(), Gone> {
    let walk = match UsageWalk::new(path, options) {
        Ok(walk) => walk,
        // The other paths are still wanted.
        Err(error) => {
            return infos.add(info(Usage {
                path: path.to_owned(),
                relative: PathBuf::from("."),
                bytes: Err(error),
            }));
        }
    };
    for usage in walk {
        infos.keep_alive()?;
        if let Some(usage) = usage.filter(|usage| wanted(usage, threshold)) {
            infos.add(info(usage))?;
        }
    }
    Ok(())
}

/// A path that failed is always included.
fn wanted(usage: &Usage, threshold: i64) -> bool {
    let bound = threshold.unsigned_abs();
    match &usage.bytes {
        Ok(bytes) if threshold < 0 => *bytes <= bound,
        Ok(bytes) => *bytes >= bound,
        Err(_) => true,
    }
}

fn info(usage: Usage) -> DiskUsageInfo {
    let (size, error) = match usage.bytes {
        Ok(bytes) => (i64::try_from(bytes).unwrap_or(i64::MAX), String::new()),
        Err(error) => (0, error.to_string()),
    };
    DiskUsageInfo {
        metadata: None,
        name: path_to_wire(&usage.path),
        size,
        error,
        relative_name: path_to_wire(&usage.relative),
    }
}
