//! Reading an archive: members in order, each with its data.

use std::io::{self, Read};

use tar::{EntryType, Header};

use crate::writer::BLOCK_BYTES;
use crate::{Content, Member, Time, acl, pax, sparse};

/// The bytes of names and attributes of one member.
const MAX_RECORD_BYTES: u64 = 8 << 20;

#[derive(Debug)]
pub struct Reader<R> {
    archive: R,
    /// Data of the current member not read yet, and the padding behind them.
    left: u64,
    padding: u64,
}

/// The headers before a member.
#[derive(Debug, Default)]
struct Extended {
    records: Vec<u8>,
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
}

impl<R: Read> Reader<R> {
    pub fn new(archive: R) -> Self {
        Self {
            archive,
            left: 0,
            padding: 0,
        }
    }

    /// Returns the next member; `None` at the end. What was not read of the data is skipped. Members
    /// of kinds that are unknown are skipped too.
    pub fn next_member(&mut self) -> io::Result<Option<Member>> {
        let mut extended = Extended::default();
        loop {
            let skipped = self.left.saturating_add(self.padding);
            (self.left, self.padding) = (0, 0);
            skip(&mut self.archive, skipped)?;
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            self.expect(header.entry_size()?);
            match header.entry_type() {
                EntryType::XHeader => extended.records = self.records()?,
                EntryType::GNULongName => extended.name = Some(self.long_name()?),
                EntryType::GNULongLink => extended.link = Some(self.long_name()?),
                EntryType::XGlobalHeader => {}
                _ => {
                    let extended = std::mem::take(&mut extended);
                    if let Some(member) = self.member(&header, extended)? {
                        return Ok(Some(member));
                    }
                }
            }
        }
    }

    fn header(&mut self) -> io::Result<Option<Header>> {
        let mut block = [0; BLOCK_BYTES];
        self.archive.read_exact(&mut block)?;
        if block == [0; BLOCK_BYTES] {
            return Ok(None);
        }
        let header = Header::from_byte_slice(&block).clone();
        let sum: u32 = block
            .iter()
            .enumerate()
            .map(|(at, byte)| {
                u32::from(if (148..156).contains(&at) {
                    b' '
                } else {
                    *byte
                })
            })
            .sum();
        if header.cksum().ok() == Some(sum) {
            Ok(Some(header))
        } else {
            Err(invalid("wrong checksum of a header"))
        }
    }

    /// Sets the size of the data that follow.
    fn expect(&mut self, size: u64) {
        let block = BLOCK_BYTES as u64;
        self.left = size;
        self.padding = (block - size % block) % block;
    }

    fn records(&mut self) -> io::Result<Vec<u8>> {
        if self.left > MAX_RECORD_BYTES {
            return Err(invalid("names and attributes of a member are too long"));
        }
        let mut records = Vec::new();
        self.read_to_end(&mut records)?;
        Ok(records)
    }

    fn long_name(&mut self) -> io::Result<Vec<u8>> {
        let mut name = self.records()?;
        while name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }

    fn member(&mut self, header: &Header, extended: Extended) -> io::Result<Option<Member>> {
        let mut pax = Records::default();
        for (keyword, value) in pax::parse(&extended.records)? {
            pax.apply(keyword, value)?;
        }
        if let Some(size) = pax.size {
            self.expect(size);
        }
        let name = pax.sparse_name.or(pax.path).or(extended.name);
        let mut name = name.unwrap_or_else(|| header.path_bytes().into_owned());
        let link = || {
            let link = pax.link.clone().or(extended.link.clone());
            link.or_else(|| header.link_name_bytes().map(|name| name.into_owned()))
                .unwrap_or_default()
        };
        let device = || -> io::Result<(u32, u32)> {
            let (major, minor) = (header.device_major()?, header.device_minor()?);
            Ok((major.unwrap_or(0), minor.unwrap_or(0)))
        };
        let content = match header.entry_type() {
            EntryType::Regular | EntryType::Continuous if name.ends_with(b"/") => {
                Content::Directory
            }
            EntryType::Regular | EntryType::Continuous => match pax.sparse {
                Some(size) => self.sparse(size)?,
                None => Content::Regular { size: self.left },
            },
            EntryType::Directory => Content::Directory,
            EntryType::Symlink => Content::Symlink { target: link() },
            EntryType::Link => Content::HardLink { target: link() },
            EntryType::Fifo => Content::Fifo,
            EntryType::Char => {
                let (major, minor) = device()?;
                Content::CharDevice { major, minor }
            }
            EntryType::Block => {
                let (major, minor) = device()?;
                Content::BlockDevice { major, minor }
            }
            _ => return Ok(None),
        };
        while content == Content::Directory && name.len() > 1 && name.ends_with(b"/") {
            name.pop();
        }
        let id = |pax: Option<u32>, field: io::Result<u64>| match pax {
            Some(id) => Ok(id),
            None => u32::try_from(field?).map_err(|_| invalid("owner of a member is no ID")),
        };
        let modified = match pax.modified {
            Some(time) => time,
            None => Time {
                seconds: i64::try_from(header.mtime()?)
                    .map_err(|_| invalid("modification time out of range"))?,
                nanoseconds: 0,
            },
        };
        Ok(Some(Member {
            name,
            content,
            mode: header.mode()? & 0o7777,
            uid: id(pax.uid, header.uid())?,
            gid: id(pax.gid, header.gid())?,
            modified,
            xattrs: pax.xattrs,
        }))
    }

    fn sparse(&mut self, size: u64) -> io::Result<Content> {
        let (segments, map_bytes) = sparse::read_map(&mut *self, size)?;
        let data: u64 = segments.iter().map(|segment| segment.length).sum();
        if data != self.left {
            let message = format!("sparse file with a map of {map_bytes} bytes lacks data");
            return Err(invalid(&message));
        }
        Ok(Content::Sparse { size, segments })
    }
}

/// The data of the current member.
impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let read = self.archive.read(&mut buffer[..most])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

/// The records of a PAX header that are understood.
#[derive(Debug, Default)]
struct Records {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u32>,
    gid: Option<u32>,
    modified: Option<Time>,
    /// The real size of a sparse file, and its real name.
    sparse: Option<u64>,
    sparse_name: Option<Vec<u8>>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Records {
    fn apply(&mut self, keyword: &[u8], value: &[u8]) -> io::Result<()> {
        let wrong = || invalid("unreadable value in a PAX header");
        match keyword {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(pax::number(value).ok_or_else(wrong)?),
            b"uid" => self.uid = Some(pax::number(value).ok_or_else(wrong)?),
            b"gid" => self.gid = Some(pax::number(value).ok_or_else(wrong)?),
            b"mtime" => self.modified = Some(pax::parse_time(value).ok_or_else(wrong)?),
            b"GNU.sparse.major" if value != b"1" => {
                return Err(invalid("unknown format of a sparse file"));
            }
            b"GNU.sparse.name" => self.sparse_name = Some(value.to_vec()),
            b"GNU.sparse.realsize" => self.sparse = Some(pax::number(value).ok_or_else(wrong)?),
            b"SCHILY.acl.access" => self.add_acl(acl::ACCESS, value),
            b"SCHILY.acl.default" => self.add_acl(acl::DEFAULT, value),
            keyword => {
                if let Some(name) = pax::xattr_name(keyword) {
                    self.xattrs.push((name, value.to_vec()));
                }
            }
        }
        Ok(())
    }

    /// An ACL of names that mean nothing here stays text: setting it fails, and is reported.
    fn add_acl(&mut self, name: &[u8], text: &[u8]) {
        let value = acl::from_text(text).unwrap_or_else(|| text.to_vec());
        self.xattrs.push((name.to_vec(), value));
    }
}

fn skip(archive: &mut impl Read, bytes: u64) -> io::Result<()> {
    if bytes > 0 && io::copy(&mut archive.take(bytes), &mut io::sink())? < bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.to_owned())
}
