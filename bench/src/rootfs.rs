//! What containers of the peers see: one program without any library, and where to mount things.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tar::{Builder, EntryType, Header};

const BUSYBOX: &str = "/bin/busybox";
const DIRECTORIES: [&str; 5] = ["bin", "dev", "proc", "sys", "tmp"];
const PROGRAMS: [&str; 2] = ["sleep", "true"];

/// Makes it as a directory.
pub fn make(root: &Path) -> Result<()> {
    for directory in DIRECTORIES {
        std::fs::create_dir_all(root.join(directory))?;
    }
    std::fs::copy(BUSYBOX, root.join("bin/busybox"))
        .context("busybox is missing; scripts/setup-bench installs it")?;
    for program in PROGRAMS {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(program))?;
    }
    Ok(())
}

/// Makes it as an image called `tag`, in an archive like those of `docker save`.
pub fn archive(dir: &Path, tag: &str) -> Result<std::path::PathBuf> {
    let root = dir.join("rootfs");
    make(&root)?;
    let layer = dir.join("layer.tar");
    let mut archive = Builder::new(std::fs::File::create(&layer)?);
    archive.follow_symlinks(false);
    archive.append_dir_all("", &root)?;
    archive.into_inner()?;

    let config = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": { "Cmd": ["true"], "Env": ["PATH=/bin"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sha256(&layer)?)] },
    });
    let manifest = json!([{ "Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"] }]);
    let path = dir.join("image.tar");
    let mut archive = Builder::new(std::fs::File::create(&path)?);
    archive.append_path_with_name(&layer, "layer.tar")?;
    for (name, text) in [("config.json", config), ("manifest.json", manifest)] {
        let text = text.to_string();
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        archive.append_data(&mut header, name, text.as_bytes())?;
    }
    archive.into_inner()?;
    Ok(path)
}

fn sha256(file: &Path) -> Result<String> {
    let output = Command::new("sha256sum")
        .arg(file)
        .output()
        .context("sha256sum cannot be run")?;
    ensure!(
        output.status.success(),
        "sha256sum ended with {}",
        output.status
    );
    let text = String::from_utf8(output.stdout)?;
    Ok(text.split(' ').next().unwrap_or_default().to_owned())
}
