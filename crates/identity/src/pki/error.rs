//! Errors of the node's certificates, each with its remedy.

use std::io;
use std::path::PathBuf;

use super::info::UnreadableCertificate;
use crate::secret_file::SecretFileError;

/// The reason a certificate cannot be loaded, checked or issued.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// The directory cannot be created, locked or listed.
    #[error("cannot use the directory {}; check its owner and permissions", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A public file cannot be read.
    #[error("cannot read {}; check its owner and permissions", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}; check free space and the directory's permissions", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A key file cannot be read, or others can read it.
    #[error(transparent)]
    Secret(#[from] SecretFileError),
    /// The authority's key is not a key. Making another would lock out every client.
    #[error(
        "{} is not a usable private key; restore it from a backup, or move it away to run \
         without issuing certificates (a new authority would lock out every client)",
        .path.display()
    )]
    DamagedCaKey {
        /// The key file.
        path: PathBuf,
    },
    /// The authority's key is not on this node.
    #[error(
        "{} is not there, so this node cannot issue certificates; issue them where the \
         authority's key is kept, or put the key back",
        .path.display()
    )]
    MissingCaKey {
        /// The expected path of the key.
        path: PathBuf,
    },
    /// Key and certificate of the authority are of different authorities.
    #[error(
        "{} does not belong to {}; restore the one that is wrong from a backup",
        .key.display(), .certificate.display()
    )]
    CaKeyMismatch {
        /// The key file.
        key: PathBuf,
        /// The certificate file.
        certificate: PathBuf,
    },
    /// The authority's certificate cannot be read as one.
    #[error("{} is not a usable certificate; restore it from a backup", .path.display())]
    DamagedCaCertificate {
        /// The certificate file.
        path: PathBuf,
        /// The problem.
        source: UnreadableCertificate,
    },
    /// The certificate that should be an authority's may not sign.
    #[error(
        "{} is not the certificate of an authority; put the authority's certificate there",
        .path.display()
    )]
    NotAnAuthority {
        /// The certificate file.
        path: PathBuf,
    },
    /// The authority's certificate is gone and cannot be made again as it was.
    #[error(
        "{} is missing or damaged and cannot be made again, because {} was not signed by {}; \
         restore it from a backup",
        .certificate.display(), .node.display(), .key.display()
    )]
    CaCertificateLost {
        /// The authority's certificate.
        certificate: PathBuf,
        /// The authority's key.
        key: PathBuf,
        /// The node certificate that contradicts it.
        node: PathBuf,
    },
    /// There is a node certificate but no trace of the authority that signed it.
    #[error(
        "{} is missing, but this node already had a certificate; restore it from a backup, or \
         remove node.crt and node.key to begin anew with an authority no client knows yet",
        .path.display()
    )]
    AuthorityLost {
        /// The authority's certificate.
        path: PathBuf,
    },
    /// The authority itself has expired.
    #[error(
        "{} expired on {day}; with ca.key beside it, remove it and start again (it is made anew \
         from the same key, client certificates stay valid), else bring the renewed one",
        .path.display()
    )]
    AuthorityExpired {
        /// The authority's certificate.
        path: PathBuf,
        /// The day, in UTC.
        day: String,
    },
    /// The node's certificate is unusable, and there is no key to issue another.
    #[error(
        "{problem}, and without ca.key this node cannot issue another; put a new node.crt and \
         node.key signed by the authority of ca.crt into {}",
        .directory.display()
    )]
    NodeCertificate {
        /// The directory.
        directory: PathBuf,
        /// The problem.
        problem: String,
    },
    /// Nothing printable is left of a name.
    #[error("{given:?} cannot be the name in a certificate; give one with letters or digits")]
    NoName {
        /// The name as given.
        given: String,
    },
    /// The authority ends before the certificate would begin.
    #[error("the authority expired on {day}, so it cannot issue certificates; renew it first")]
    IssuerExpired {
        /// The day, in UTC.
        day: String,
    },
    /// The pair handed in is not a certificate and its key.
    #[error("the certificate and the key given do not belong together")]
    PairMismatch,
    /// A certificate that should be readable is not.
    #[error("cannot read the certificate back")]
    Unreadable(#[from] UnreadableCertificate),
    /// The cryptographic library failed.
    #[error("cannot create a key or a certificate")]
    Generate(#[from] rcgen::Error),
    /// The random number generator of the system failed.
    #[error("cannot get random bytes from the system")]
    NoRandom,
}
