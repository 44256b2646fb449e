//! JSON records with a format version.
//!
//! A record is one JSON object. Its integer field `version` is the major version of its format; a
//! record without it was written before versions existed and counts as [`UNVERSIONED`]. A new
//! field that older builds may ignore does not change the version; a change that an older build
//! would misread does.

use std::fs;
use std::io;
use std::path::Path;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Serialize};

use crate::RecordError;

/// The version of a record that carries none.
pub const UNVERSIONED: u64 = 1;

#[derive(Deserialize)]
struct Header {
    #[serde(default = "unversioned")]
    version: u64,
}

fn unversioned() -> u64 {
    UNVERSIONED
}

#[derive(Serialize)]
struct Versioned<'a, T> {
    version: u64,
    #[serde(flatten)]
    record: &'a T,
}

/// Encodes `record` as one line of JSON whose first field is `version`.
///
/// `record` must serialize as a map and have no field `version` of its own.
pub fn encode<T: Serialize>(record: &T, version: u64) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Versioned { version, record })
}

/// Decodes a record of format version `supported` or older; `path` only names it in errors.
///
/// Fields that `T` does not know are ignored, so `T` must not deny unknown fields.
pub fn decode<T: DeserializeOwned>(
    path: &Path,
    bytes: &[u8],
    supported: u64,
) -> Result<T, RecordError> {
    let corrupt = |source| RecordError::Corrupt {
        path: path.to_owned(),
        source,
    };
    // serde also reads a struct from an array, but a record is an object.
    if bytes
        .trim_ascii_start()
        .first()
        .is_some_and(|byte| *byte != b'{')
    {
        return Err(corrupt(serde_json::Error::custom("expected a JSON object")));
    }
    let Header { version } = serde_json::from_slice(bytes).map_err(corrupt)?;
    if version > supported {
        return Err(RecordError::Newer {
            path: path.to_owned(),
            found: version,
            supported,
        });
    }
    serde_json::from_slice(bytes).map_err(corrupt)
}

/// Reads the record in the file `path` of format version `supported` or older.
pub fn read<T: DeserializeOwned>(path: &Path, supported: u64) -> Result<T, RecordError> {
    let bytes = fs::read(path).map_err(|source| {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => RecordError::NotFound { path },
            _ => RecordError::Unreadable { path, source },
        }
    })?;
    decode(path, &bytes, supported)
}
