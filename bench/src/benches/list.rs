//! How fast a tree of a million entries is listed, against `find` told to print the same of each.
//!
//! `find` gives entries in whatever order the directory has them; the node sorts them.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use mainstay_api::machine::ListRequest;
use mainstay_testkit::procfs::{cpu_seconds, peak_resident};
use tempfile::TempDir;

use super::{Setup, Single, megabytes};
use crate::client::Client;
use crate::peer::printed;
use crate::report::{Report, Target};
use crate::stats::median;

const FILES_A_DIRECTORY: u64 = 999;

pub async fn run(setup: &Setup) -> Result<Report> {
    let (rounds, directories) = setup.pick((5, 1000), (1, 50));
    let dir = TempDir::with_prefix("mainstay-bench-")?;
    let tree = dir.path().join("tree");
    make_tree(&tree, directories)?;
    let entries = directories * (FILES_A_DIRECTORY + 1) + 1;
    let single = Single::start(setup);
    let mut client = single.connect().await?;
    let find = || {
        let mut command = Command::new("find");
        command
            .arg(&tree)
            .args(["-printf", r"%p %P %y %m %s %T@ %l %U %G\n"]);
        command
    };

    // What the kernel has to read from the disk, it reads now.
    printed(find()).await?;
    let (mut of_node, mut of_find, mut cpu) = (vec![], vec![], vec![]);
    for _ in 0..rounds {
        let before = cpu_seconds(single.node.pid())?;
        let began = Instant::now();
        let seen = list(&mut client, &tree).await?;
        of_node.push(entries as f64 / began.elapsed().as_secs_f64());
        cpu.push(cpu_seconds(single.node.pid())? - before);
        ensure!(seen == entries, "{seen} of {entries} entries were told");
        let printed = printed(find()).await?;
        of_find.push(entries as f64 / printed.took.as_secs_f64());
        ensure!(
            printed.lines == entries,
            "find printed {} lines",
            printed.lines
        );
    }

    let mut report = Report::new(
        "list",
        format!("{entries} entries, median of {rounds} rounds, in turns"),
    );
    let (node, find) = (median(of_node), median(of_find));
    report.figure("List over mTLS", "entries/s", node);
    report.figure("find -printf", "entries/s", find);
    report.figure("List over mTLS", "node CPU s", median(cpu));
    let target = Some(Target::AtLeast(0.8));
    report.ratio("List against find -printf", node / find, target);
    report.compare(
        "the node's memory at its peak",
        megabytes(peak_resident(single.node.pid())?),
        " MB",
        None,
    );
    Ok(report)
}

fn make_tree(root: &Path, directories: u64) -> Result<()> {
    for directory in 0..directories {
        let dir = root.join(format!("{directory:04}"));
        std::fs::create_dir_all(&dir)?;
        for file in 0..FILES_A_DIRECTORY {
            File::create(dir.join(format!("file-{file:04}")))?;
        }
    }
    Ok(())
}

async fn list(client: &mut Client, tree: &Path) -> Result<u64> {
    let request = ListRequest {
        root: tree.display().to_string(),
        recurse: true,
        ..ListRequest::default()
    };
    let mut stream = client.list(request).await?.into_inner();
    let mut seen = 0;
    while let Some(info) = stream.message().await? {
        ensure!(info.error.is_empty(), "{}: {}", info.name, info.error);
        seen += 1;
    }
    Ok(seen)
}
