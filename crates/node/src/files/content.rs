//! The data of a file, exactly as many bytes as its archive entry announces.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use mainstay_archive::Segment;

/// Yields the bytes of segments of a file: no more if the file has grown, and zeros for what is
/// missing if it has shrunk.
#[derive(Debug)]
pub(super) struct ExactContent<'a> {
    file: &'a File,
    /// The rest of the current segment, and those behind it.
    current: Segment,
    segments: std::slice::Iter<'a, Segment>,
    /// Why bytes are missing.
    failed: Option<String>,
}

impl<'a> ExactContent<'a> {
    pub(super) fn new(file: &'a File, segments: &'a [Segment]) -> Self {
        Self {
            file,
            current: Segment {
                offset: 0,
                length: 0,
            },
            segments: segments.iter(),
            failed: None,
        }
    }

    /// Returns the reason why bytes are missing.
    pub(super) fn failed(self) -> Option<String> {
        self.failed
    }
}

impl Read for ExactContent<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.length == 0 {
            match self.segments.next() {
                Some(next) => self.current = *next,
                None => return Ok(0),
            }
        }
        let most = usize::try_from(self.current.length)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let buffer = &mut buffer[..most];
        let read = match &self.failed {
            Some(_) => 0,
            None => match self.file.read_at(buffer, self.current.offset) {
                Ok(0) if !buffer.is_empty() => {
                    self.failed = Some("shrank while it was copied".to_owned());
                    0
                }
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
                Err(error) => {
                    self.failed = Some(error.to_string());
                    0
                }
            },
        };
        let given = if read == 0 {
            buffer.fill(0);
            buffer.len()
        } else {
            read
        };
        self.current.offset += given as u64;
        self.current.length -= given as u64;
        Ok(given)
    }
}
