//! Container images made on the spot: no registry is needed, and none is asked.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tar::{Builder, EntryType, Header};

/// What containers of the tests run, with the programs of busybox.
pub const BUSYBOX: &str = "mainstay.test/busybox:1";
/// What holds pods together.
pub const PAUSE: &str = "mainstay.test/pause:1";

const PROGRAMS: &[&str] = &["cat", "dd", "echo", "printf", "sh", "sleep", "true", "yes"];

/// An archive of both images, as `docker save` makes them.
pub fn archive(dir: &Path) -> PathBuf {
    let layer = dir.join("layer.tar");
    std::fs::write(&layer, layer_bytes()).unwrap();
    let output = Command::new("sha256sum").arg(&layer).output().unwrap();
    let digest = String::from_utf8(output.stdout).unwrap();
    let digest = digest.split(' ').next().unwrap();
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
    let mut archive = Builder::new(std::fs::File::create(&path).unwrap());
    archive.append_path_with_name(&layer, "layer.tar").unwrap();
    for (name, text) in [
        ("busybox.json", config(&["sh"])),
        // The pid of a pod's sandbox ends on SIGTERM, as a real one does.
        (
            "pause.json",
            config(&["sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"]),
        ),
        ("manifest.json", manifest.to_string()),
    ] {
        let mut header = header(EntryType::Regular, 0o644);
        header.set_size(text.len().try_into().unwrap());
        archive
            .append_data(&mut header, name, text.as_bytes())
            .unwrap();
    }
    archive.into_inner().unwrap();
    path
}

fn layer_bytes() -> Vec<u8> {
    let mut layer = Builder::new(Vec::new());
    for directory in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
        let mut header = header(EntryType::Directory, 0o755);
        layer.append_data(&mut header, directory, &[][..]).unwrap();
    }
    let busybox = std::fs::read("/bin/busybox")
        .expect("/bin/busybox is missing; scripts/setup-test installs busybox-static");
    let mut program = header(EntryType::Regular, 0o755);
    program.set_size(busybox.len().try_into().unwrap());
    layer
        .append_data(&mut program, "bin/busybox", &*busybox)
        .unwrap();
    for name in PROGRAMS {
        let mut link = header(EntryType::Symlink, 0o777);
        layer
            .append_link(&mut link, format!("bin/{name}"), "busybox")
            .unwrap();
    }
    layer.into_inner().unwrap()
}

fn header(kind: EntryType, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(0);
    header
}
