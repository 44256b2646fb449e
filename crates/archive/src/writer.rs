//! Writing an archive. What an ustar header has no room for is in a PAX header before it.

use std::io::{self, Read, Write};

use tar::{EntryType, Header};

use crate::{Content, Member, Time, acl, pax, sparse};

pub(crate) const BLOCK_BYTES: usize = 512;
/// The largest number of an ustar field of eight and of twelve bytes.
const MAX_ID: u32 = 0o7_777_777;
const MAX_LONG: u64 = 0o77_777_777_777;
const COPY_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    records: Vec<u8>,
    buffer: Vec<u8>,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W) -> Self {
        Self {
            out,
            records: Vec::new(),
            buffer: vec![0; COPY_BYTES],
        }
    }

    /// Writes a member. `data` has to yield as many bytes as its content says.
    pub fn append(&mut self, member: &Member, data: impl Read) -> io::Result<()> {
        let mut header = Header::new_ustar();
        header.set_mode(member.mode & 0o7777);
        header.set_uid(member.uid.min(MAX_ID).into());
        header.set_gid(member.gid.min(MAX_ID).into());
        let seconds = u64::try_from(member.modified.seconds).unwrap_or(0);
        header.set_mtime(seconds.min(MAX_LONG));
        self.records.clear();
        let map = self.describe(&mut header, member)?;
        let size = map.len() as u64 + data_bytes(&member.content);
        header.set_size(size.min(MAX_LONG));
        if size > MAX_LONG {
            pax::push(&mut self.records, b"size", size.to_string().as_bytes());
        }
        self.add_records(member);
        if !self.records.is_empty() {
            self.write_records()?;
        }
        header.set_cksum();
        self.out.write_all(header.as_bytes())?;
        self.out.write_all(&map)?;
        self.copy(data, data_bytes(&member.content))
    }

    /// Ends the archive and returns what it was written to.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 2 * BLOCK_BYTES])?;
        Ok(self.out)
    }

    /// Sets the kind and the names of a header. Returns the map of a sparse file.
    fn describe(&mut self, header: &mut Header, member: &Member) -> io::Result<Vec<u8>> {
        let mut name = member.name.clone();
        let mut map = Vec::new();
        let kind = match &member.content {
            Content::Regular { .. } => EntryType::Regular,
            Content::Sparse { size, segments } => {
                map = sparse::map(*size, segments);
                for (keyword, value) in [("major", "1"), ("minor", "0")] {
                    let keyword = format!("GNU.sparse.{keyword}");
                    pax::push(&mut self.records, keyword.as_bytes(), value.as_bytes());
                }
                pax::push(&mut self.records, b"GNU.sparse.name", &name);
                let size = size.to_string();
                pax::push(&mut self.records, b"GNU.sparse.realsize", size.as_bytes());
                // Shown only by programs that know no sparse files.
                name.splice(..0, *b"GNUSparseFile.0/");
                name.truncate(header.as_old().name.len());
                EntryType::Regular
            }
            Content::Directory => {
                name.push(b'/');
                EntryType::Directory
            }
            Content::Symlink { target } => {
                self.set_link(header, target);
                EntryType::Symlink
            }
            Content::HardLink { target } => {
                self.set_link(header, target);
                EntryType::Link
            }
            Content::Fifo => EntryType::Fifo,
            Content::CharDevice { major, minor } => {
                set_device(header, *major, *minor)?;
                EntryType::Char
            }
            Content::BlockDevice { major, minor } => {
                set_device(header, *major, *minor)?;
                EntryType::Block
            }
        };
        header.set_entry_type(kind);
        if !put(&mut header.as_old_mut().name, &name) {
            self.push_name(b"path", &name);
        }
        Ok(map)
    }

    fn set_link(&mut self, header: &mut Header, target: &[u8]) {
        if !put(&mut header.as_old_mut().linkname, target) {
            self.push_name(b"linkpath", target);
        }
    }

    fn push_name(&mut self, keyword: &[u8], name: &[u8]) {
        if std::str::from_utf8(name).is_err() {
            pax::push(&mut self.records, b"hdrcharset", b"BINARY");
        }
        pax::push(&mut self.records, keyword, name);
    }

    fn add_records(&mut self, member: &Member) {
        let Time {
            seconds,
            nanoseconds,
        } = member.modified;
        if nanoseconds != 0 || u64::try_from(seconds).is_ok_and(|s| s > MAX_LONG) || seconds < 0 {
            let time = pax::time(member.modified);
            pax::push(&mut self.records, b"mtime", time.as_bytes());
        }
        for (keyword, id) in [("uid", member.uid), ("gid", member.gid)] {
            if id > MAX_ID {
                let id = id.to_string();
                pax::push(&mut self.records, keyword.as_bytes(), id.as_bytes());
            }
        }
        for (name, value) in &member.xattrs {
            let text = match name.as_slice() {
                acl::ACCESS => acl::to_text(value).map(|text| ("SCHILY.acl.access", text)),
                acl::DEFAULT => acl::to_text(value).map(|text| ("SCHILY.acl.default", text)),
                _ => None,
            };
            match text {
                Some((keyword, text)) => {
                    pax::push(&mut self.records, keyword.as_bytes(), text.as_bytes());
                }
                None => pax::push(&mut self.records, &pax::xattr_keyword(name), value),
            }
        }
    }

    fn write_records(&mut self) -> io::Result<()> {
        let mut header = Header::new_ustar();
        put(&mut header.as_old_mut().name, b"PaxHeaders/0");
        header.set_entry_type(EntryType::XHeader);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(self.records.len() as u64);
        header.set_cksum();
        let padded = self.records.len().next_multiple_of(BLOCK_BYTES);
        self.records.resize(padded, 0);
        self.out.write_all(header.as_bytes())?;
        self.out.write_all(&self.records)
    }

    fn copy(&mut self, mut data: impl Read, length: u64) -> io::Result<()> {
        let mut left = length;
        while left > 0 {
            let most = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(self.buffer.len());
            let read = match data.read(&mut self.buffer[..most]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.out.write_all(&self.buffer[..read])?;
            left -= read as u64;
        }
        let block = BLOCK_BYTES as u64;
        let padding = usize::try_from(length.next_multiple_of(block) - length).unwrap_or(0);
        self.out.write_all(&[0; BLOCK_BYTES][..padding])
    }
}

/// The number of bytes of a member's data, without the map of a sparse file.
fn data_bytes(content: &Content) -> u64 {
    match content {
        Content::Regular { size } => *size,
        Content::Sparse { segments, .. } => segments.iter().map(|segment| segment.length).sum(),
        _ => 0,
    }
}

/// Copies a name to a field; false if it was cut.
fn put(field: &mut [u8], name: &[u8]) -> bool {
    let length = name.len().min(field.len());
    field[..length].copy_from_slice(&name[..length]);
    length == name.len()
}

fn set_device(header: &mut Header, major: u32, minor: u32) -> io::Result<()> {
    header.set_device_major(major)?;
    header.set_device_minor(minor)
}
