//! The initramfs: a cpio archive in the format `newc`.

use std::collections::BTreeSet;
use std::path::Path;

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    directories: BTreeSet<String>,
}

impl Archive {
    pub fn directory(&mut self, path: &Path) {
        let name = name_of(path);
        if name.is_empty() || self.directories.contains(&name) {
            return;
        }
        self.parent(path);
        self.entry(&name, DIRECTORY | 0o755, (0, 0), &[]);
        self.directories.insert(name);
    }

    pub fn file(&mut self, path: &Path, mode: u32, content: &[u8]) {
        self.parent(path);
        self.entry(&name_of(path), REGULAR | mode, (0, 0), content);
    }

    pub fn character_device(&mut self, path: &Path, mode: u32, number: (u32, u32)) {
        self.parent(path);
        self.entry(&name_of(path), CHARACTER_DEVICE | mode, number, &[]);
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    /// The kernel creates no directory that is not in the archive.
    fn parent(&mut self, path: &Path) {
        if let Some(parent) = path.parent() {
            self.directory(parent);
        }
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.entries += 1;
        let size = |length: usize| u32::try_from(length).unwrap();
        self.bytes.extend_from_slice(b"070701");
        let (inode, owner, links, modified, disk) = (self.entries, (0, 0), 1, 0, (0, 0));
        for field in [
            inode,
            mode,
            owner.0,
            owner.1,
            links,
            modified,
            size(content.len()),
            disk.0,
            disk.1,
            device.0,
            device.1,
            size(name.len() + 1),
            0, // a checksum in another format
        ] {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

fn name_of(path: &Path) -> String {
    let path = path.strip_prefix("/").unwrap_or(path);
    path.to_str().unwrap().to_owned()
}
