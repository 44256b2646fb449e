//! `Read`: the content of one regular file.

use bytes::Bytes;
use mainstay_api::common::Data;
use mainstay_node::files::{ReadError, open_regular, read_piece};
use tonic::Status;

use crate::rpc::{Answers, produce, status};
use crate::text::{path_from_wire, shorten, shown_path};

/// Large enough that the cost per message does not matter.
const CHUNK_BYTES: usize = 256 << 10;

pub(super) fn stream(path: &str) -> Result<Answers<Data>, Status> {
    if !path.starts_with('/') {
        return Err(Status::invalid_argument(format!(
            "path is not absolute: {:?}",
            shorten(path)
        )));
    }
    let path = path_from_wire(path);
    let what = shown_path(&path);
    let chunks = produce(what, move |reader| {
        let file = match open_regular(&path) {
            Ok(file) => file,
            Err(error) => {
                let _ = reader.give(Err(read_status(&error)));
                return;
            }
        };
        loop {
            let item = match read_piece(&file, CHUNK_BYTES) {
                Ok(bytes) if bytes.is_empty() => return,
                Ok(bytes) => Ok(Data {
                    metadata: None,
                    bytes: Bytes::from(bytes),
                }),
                Err(error) => Err(status::of_file(&path, &error)),
            };
            let failed = item.is_err();
            if reader.give(item).is_err() || failed {
                return;
            }
        }
    })?;
    Ok(Box::pin(chunks))
}

fn read_status(error: &ReadError) -> Status {
    match error {
        ReadError::NotRegular { path } => {
            Status::invalid_argument(format!("path must be a regular file: {}", shown_path(path)))
        }
        ReadError::Io { path, source } => status::of_file(path, source),
    }
}
