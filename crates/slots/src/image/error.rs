//! The reasons an upgrade image is refused.

use std::io;
use std::path::PathBuf;

use crate::Digest;

/// The reason an upgrade image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// There is nothing at the path.
    #[error("upgrade image {} not found", .path.display())]
    NotFound {
        /// The path of the request.
        path: PathBuf,
    },
    /// The path is neither a directory nor a regular file.
    #[error("upgrade image {} is neither an OCI layout directory nor an archive of one", .path.display())]
    NeitherFileNorDirectory {
        /// The path of the request.
        path: PathBuf,
    },
    /// A read of the image or a write of what is extracted failed.
    #[error("cannot read the upgrade image")]
    Read(#[source] io::Error),
    /// The binary cannot be written, for example on a full disk.
    #[error("cannot write {}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the write.
        source: io::Error,
    },
    /// The archive is no tar archive, or ends early.
    #[error("the upgrade image is no readable tar archive, or is truncated")]
    Archive(#[source] io::Error),
    /// A size exceeds what the reader accepts.
    #[error("{subject} of the upgrade image exceeds {limit} bytes")]
    TooLarge {
        /// The part that is too large.
        subject: &'static str,
        /// The limit.
        limit: u64,
    },
    /// Too many entries in an archive.
    #[error("{subject} of the upgrade image has more than {limit} entries")]
    TooManyEntries {
        /// The archive.
        subject: &'static str,
        /// The limit.
        limit: usize,
    },
    /// An entry with the same name exists.
    #[error("the archive of the upgrade image has {name} twice")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A file that the layout needs is missing.
    #[error("the upgrade image has no {name}, it is no OCI layout or is truncated")]
    Missing {
        /// The file.
        name: String,
    },
    /// A JSON document cannot be parsed.
    #[error("{document} of the upgrade image is not valid")]
    Invalid {
        /// The document.
        document: &'static str,
        /// The error of the parser.
        source: serde_json::Error,
    },
    /// The content is not that of its descriptor.
    #[error("{subject} of the upgrade image has digest {found}, not {expected}; it is corrupt")]
    WrongDigest {
        /// The part.
        subject: &'static str,
        /// The digest in its descriptor.
        expected: Digest,
        /// The digest of the content.
        found: Digest,
    },
    /// The content has another size than its descriptor says.
    #[error(
        "{subject} of the upgrade image has {found} bytes, not {expected}; it is truncated or corrupt"
    )]
    WrongSize {
        /// The part.
        subject: &'static str,
        /// The size in its descriptor.
        expected: u64,
        /// The size of the content.
        found: u64,
    },
    /// There is no manifest, or one that cannot be told from others.
    #[error("the upgrade image has {count} manifests for linux/{architecture}, not one")]
    Manifests {
        /// The manifests that match.
        count: usize,
        /// The architecture of this node.
        architecture: &'static str,
    },
    /// The image is for another machine.
    #[error("the upgrade image is for {found}, this node is {expected}")]
    WrongPlatform {
        /// The platform in the image, or in its executable.
        found: String,
        /// The platform of this node.
        expected: String,
    },
    /// The image has another number of layers than one.
    #[error("the upgrade image has {0} layers, not one")]
    Layers(usize),
    /// A media type this version does not read.
    #[error("the upgrade image has a layer of media type {0:?}; tar and gzip are supported")]
    MediaType(String),
    /// The layer does not contain the binary.
    #[error("the layer of the upgrade image has no regular file {path}")]
    NoBinary {
        /// The path the binary should have.
        path: String,
    },
    /// Metadata that every image needs is missing or malformed.
    #[error("the upgrade image has no valid annotation {key}")]
    Annotation {
        /// The key.
        key: &'static str,
    },
    /// The file in the layer cannot be executed here.
    #[error("{path} in the upgrade image is no executable of Linux")]
    NotExecutable {
        /// The path in the layer.
        path: String,
    },
    /// The binary carries no build stamp.
    #[error("{path} in the upgrade image is no mainstay that supports upgrades")]
    NoStamp {
        /// The path in the layer.
        path: String,
    },
    /// The metadata says something else than the binary.
    #[error("the upgrade image claims {fact} {claimed}, its binary is {actual}")]
    Claim {
        /// The fact.
        fact: &'static str,
        /// The value in the annotations.
        claimed: String,
        /// The value in the binary.
        actual: String,
    },
    /// Keys are configured and no signature is by one of them.
    #[error("the upgrade image is not signed by a key in upgrade.keys: {}", reason(.signatures))]
    NotSigned {
        /// The signatures in the image.
        signatures: usize,
    },
}

fn reason(signatures: &usize) -> String {
    match signatures {
        0 => "it has no signature".to_owned(),
        1 => "its signature does not verify".to_owned(),
        count => format!("none of its {count} signatures verifies"),
    }
}

/// The reason a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The text is no PEM of the kind.
    #[error("the key is no {expected}")]
    Pem {
        /// The kind that is read.
        expected: &'static str,
        /// The error of the parser.
        source: rustls_pki_types::pem::Error,
    },
    /// The key is of another algorithm.
    #[error("the key is no ECDSA P-256 key")]
    Algorithm,
}
