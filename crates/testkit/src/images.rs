//! Container images built from busybox, without a registry.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tar::{Builder, EntryType, Header};

/// The image that containers of tests run.
pub const BUSYBOX: &str = "mainstay.test/busybox:1";
/// The image of pod sandboxes.
pub const PAUSE: &str = "mainstay.test/pause:1";

const DIRECTORIES: &[&str] = &["bin", "dev", "etc", "proc", "sys", "tmp"];
const PROGRAMS: &[&str] = &["cat", "dd", "echo", "printf", "sh", "sleep", "true", "yes"];

/// Creates the root file system of both images as a directory.
pub fn make_rootfs(root: &Path) {
    for directory in DIRECTORIES {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    std::fs::copy("/bin/busybox", root.join("bin/busybox"))
        .expect("cannot copy /bin/busybox; scripts/setup-test installs busybox-static");
    for program in PROGRAMS {
        symlink("busybox", root.join("bin").join(program)).unwrap();
    }
}

/// Creates an archive of both images in `dir`, in the format of `docker save`.
pub fn archive(dir: &Path) -> PathBuf {
    let layer = layer(dir);
    let digest = sha256(&layer);
    let config = |command: &[&str]| {
        json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "config": { "Cmd": command, "Env": ["PATH=/bin"] },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
        })
        .to_string()
    };
    let image = |tag: &str, config: &str| json!({ "Config": config, "RepoTags": [tag], "Layers": ["layer.tar"] });
    let manifest = json!([image(BUSYBOX, "busybox.json"), image(PAUSE, "pause.json")]);
    let path = dir.join("images.tar");
    let mut archive = Builder::new(File::create(&path).unwrap());
    archive.append_path_with_name(&layer, "layer.tar").unwrap();
    for (name, text) in [
        ("busybox.json", config(&["sh"])),
        // A sandbox exits on SIGTERM, as a real pause container does.
        (
            "pause.json",
            config(&["sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"]),
        ),
        ("manifest.json", manifest.to_string()),
    ] {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_size(text.len().try_into().unwrap());
        archive
            .append_data(&mut header, name, text.as_bytes())
            .unwrap();
    }
    archive.into_inner().unwrap();
    path
}

fn layer(dir: &Path) -> PathBuf {
    let root = dir.join("rootfs");
    make_rootfs(&root);
    let path = dir.join("layer.tar");
    let mut layer = Builder::new(File::create(&path).unwrap());
    layer.follow_symlinks(false);
    layer.append_dir_all("", &root).unwrap();
    layer.into_inner().unwrap();
    path
}

fn sha256(file: &Path) -> String {
    let output = Command::new("sha256sum").arg(file).output().unwrap();
    assert!(output.status.success(), "sha256sum: {}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    text.split(' ').next().unwrap().to_owned()
}
