//! `Copy`: a file or a tree as a gzip-compressed tar archive.

use std::io::{self, Write};

use bytes::Bytes;
use mainstay_api::common::{Data, Metadata};
use mainstay_node::files::pack;
use tonic::Status;

use crate::rpc::{Answers, Reader, produce, status};
use crate::text::{path_from_wire, shorten, shown_path};

const CHUNK_BYTES: usize = 256 << 10;

pub(super) fn stream(root: &str) -> Result<Answers<Data>, Status> {
    if !root.starts_with('/') {
        return Err(Status::invalid_argument(format!(
            "path is not absolute: {:?}",
            shorten(root)
        )));
    }
    let root = path_from_wire(root);
    let what = shown_path(&root);
    let chunks = produce(what, move |reader| {
        let mut out = Chunks {
            reader,
            waiting: Vec::with_capacity(CHUNK_BYTES),
        };
        let last = match pack(&root, &mut out) {
            Ok(left) => left.summary().map(|error| {
                Ok(Data {
                    metadata: Some(Metadata {
                        error,
                        ..Metadata::default()
                    }),
                    bytes: Bytes::new(),
                })
            }),
            // The reader has gone: there is nobody to tell.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => None,
            Err(error) => Some(Err(status::of_file(&root, &error))),
        };
        if let Some(last) = last {
            let _ = reader.give(last);
        }
    })?;
    Ok(Box::pin(chunks))
}

/// Gathers the archive's bytes into messages.
struct Chunks<'a> {
    reader: &'a Reader<Data>,
    waiting: Vec<u8>,
}

impl Chunks<'_> {
    fn send(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let next = Vec::with_capacity(CHUNK_BYTES);
        let bytes = Bytes::from(std::mem::replace(&mut self.waiting, next));
        self.reader
            .give(Ok(Data {
                metadata: None,
                bytes,
            }))
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Chunks<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= CHUNK_BYTES {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}
