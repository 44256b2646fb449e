//! Upgrade images: OCI images, in a layout directory or an archive of one, whose single layer holds
//! the binary.
//!
//! The reader trusts nothing: every blob is read with the size and the digest of its descriptor,
//! everything is bounded, and what the annotations say is compared with the binary.

mod error;
mod layer;
mod oci;
mod signature;
mod source;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use error::{ImageError, KeyError};
use oci::{
    Annotations, Compression, Descriptor, INDEX_FILE, ImageConfig, Index, LAYOUT_FILE, Manifest,
    REF_NAME,
};
pub use signature::{SigningKey, VerifyingKey};
use source::Source;
pub use writer::{ImageWriter, WriteError};

use crate::elf;
use crate::{BuildFacts, Digest, Stamp};

/// The format version of the state directory that the binary writes.
pub const STATE_FORMAT: &str = "org.mainstay.state-format";
/// The path of the binary in the layer.
pub const BINARY: &str = "org.mainstay.binary";
const VERSION: &str = "org.opencontainers.image.version";
const REVISION: &str = "org.opencontainers.image.revision";

/// The path of the binary if no annotation names it.
pub const DEFAULT_BINARY: &str = "usr/bin/mainstay";

/// Bytes of a JSON document.
const MAX_DOCUMENT_BYTES: u64 = 1 << 20;
/// Signatures that are looked at.
const MAX_SIGNATURES: usize = 32;

/// An upgrade image whose metadata has been read and checked.
#[derive(Debug)]
pub struct Image {
    source: Source,
    index: Index,
    manifest_digest: Digest,
    layer: Descriptor,
    compression: Compression,
    diff_id: Digest,
    binary_path: String,
    claims: BuildFacts,
}

/// The binary that was extracted from an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binary {
    /// Facts from its stamp.
    pub facts: BuildFacts,
    /// Its digest.
    pub digest: Digest,
    /// Its size.
    pub size_bytes: u64,
}

impl Image {
    /// Reads the metadata of the image at `path`. `scratch` is a directory on a disk with room for
    /// an unpacked archive; nothing is left in it.
    pub fn open(path: &Path, scratch: &Path) -> Result<Self, ImageError> {
        let source = Source::open(path, scratch)?;
        document::<serde_json::Value>(&source, LAYOUT_FILE, "oci-layout")?;
        let index: Index = document(&source, INDEX_FILE, "index.json")?;
        let chosen = choose(&index)?;
        let manifest: Manifest = blob(&source, &chosen, "the manifest")?;
        let config: ImageConfig = blob(&source, &manifest.config, "the configuration")?;
        check_platform(&config.platform.os, &config.platform.architecture)?;
        let [layer] = <[Descriptor; 1]>::try_from(manifest.layers)
            .map_err(|layers| ImageError::Layers(layers.len()))?;
        let [diff_id] = config.rootfs.diff_ids[..] else {
            return Err(ImageError::Layers(config.rootfs.diff_ids.len()));
        };
        let compression = oci::compression(&layer.media_type)
            .ok_or_else(|| ImageError::MediaType(layer.media_type.chars().take(200).collect()))?;
        // Tools that convert images drop annotations and keep labels.
        let labels = config.config.labels.unwrap_or_default();
        let claim = |key: &'static str| claim(&[&manifest.annotations, &labels], key);
        let binary_path = claim(BINARY).unwrap_or_else(|| DEFAULT_BINARY.to_owned());
        let required = |key| claim(key).ok_or(ImageError::Annotation { key });
        let state_format = required(STATE_FORMAT)?.parse();
        let claims = BuildFacts {
            version: required(VERSION)?,
            sha: claim(REVISION).unwrap_or_default(),
            state_format: state_format.map_err(|_| ImageError::Annotation { key: STATE_FORMAT })?,
        };
        Ok(Self {
            source,
            index,
            manifest_digest: chosen.digest,
            layer,
            compression,
            diff_id,
            binary_path,
            claims,
        })
    }

    /// The digest of its manifest.
    pub fn digest(&self) -> Digest {
        self.manifest_digest
    }

    /// Facts about the binary according to the metadata.
    pub fn claims(&self) -> &BuildFacts {
        &self.claims
    }

    /// Checks that a signature of one of `keys` is in the image. Without keys none is needed.
    pub fn verify_signature(&self, keys: &[VerifyingKey]) -> Result<(), ImageError> {
        if keys.is_empty() {
            return Ok(());
        }
        let signatures = self.signatures()?;
        for (payload, signature) in &signatures {
            if keys
                .iter()
                .any(|key| key.verifies(payload, signature, self.manifest_digest))
            {
                return Ok(());
            }
        }
        Err(ImageError::NotSigned {
            signatures: signatures.len(),
        })
    }

    /// The payloads and signatures that the image has for its manifest.
    fn signatures(&self) -> Result<Vec<(Vec<u8>, String)>, ImageError> {
        let reference = signature::reference(&self.manifest_digest);
        let manifests = self.index.manifests.iter();
        let manifests = manifests.filter(|it| it.annotations.get(REF_NAME) == Some(&reference));
        let mut signatures = Vec::new();
        for descriptor in manifests.take(MAX_SIGNATURES) {
            let manifest: Manifest = blob(&self.source, descriptor, "the signature")?;
            for layer in manifest.layers {
                let signature = layer.annotations.get(signature::SIGNATURE_ANNOTATION);
                let (Some(signature), true) =
                    (signature, layer.media_type == signature::PAYLOAD_TYPE)
                else {
                    continue;
                };
                let payload = blob_bytes(&self.source, &layer, "the signature")?;
                signatures.push((payload, signature.clone()));
                if signatures.len() == MAX_SIGNATURES {
                    return Ok(signatures);
                }
            }
        }
        Ok(signatures)
    }

    /// Extracts the binary to `output`, checks the digests of the layer, the architecture of the
    /// executable, and that it is what the metadata says. `output` is then fsynced.
    pub fn extract(&self, output: &mut File, output_path: &Path) -> Result<Binary, ImageError> {
        let name = oci::blob_name(&self.layer.digest);
        let (reader, size) = self.source.file(&name)?;
        check_size("the layer", self.layer.size, size)?;
        let (digest, size_bytes) = layer::extract(
            reader.take(size),
            &self.layer,
            self.compression,
            self.diff_id,
            &self.binary_path,
            (output, output_path),
        )?;
        let write = |source| ImageError::Write {
            path: output_path.to_owned(),
            source,
        };
        let path = || self.binary_path.clone();
        match elf::architecture(output).map_err(write)? {
            Some(found) => check_platform("linux", found)?,
            None => return Err(ImageError::NotExecutable { path: path() }),
        }
        std::io::Seek::rewind(output).map_err(write)?;
        let facts = Stamp::find(&*output).map_err(write)?;
        let facts = facts.ok_or_else(|| ImageError::NoStamp { path: path() })?;
        self.check_claims(&facts)?;
        output.sync_all().map_err(write)?;
        Ok(Binary {
            facts,
            digest,
            size_bytes,
        })
    }

    /// Checks everything that [`Image::extract`] checks. The binary goes to a file without a name
    /// in `scratch`.
    pub fn inspect(&self, scratch: &Path) -> Result<Binary, ImageError> {
        let file = crate::scratch_file(scratch);
        let mut file = file.map_err(|source| ImageError::Write {
            path: scratch.to_owned(),
            source,
        })?;
        self.extract(&mut file, scratch)
    }

    fn check_claims(&self, actual: &BuildFacts) -> Result<(), ImageError> {
        let claims = &self.claims;
        for (fact, claimed, actual) in [
            ("version", claims.version.clone(), actual.version.clone()),
            ("commit", claims.sha.clone(), actual.sha.clone()),
            (
                "state format",
                claims.state_format.to_string(),
                actual.state_format.to_string(),
            ),
        ] {
            if claimed != actual {
                return Err(ImageError::Claim {
                    fact,
                    claimed,
                    actual,
                });
            }
        }
        Ok(())
    }
}

fn claim(sources: &[&Annotations], key: &str) -> Option<String> {
    sources
        .iter()
        .find_map(|annotations| annotations.get(key))
        .cloned()
}

/// The manifest for this node. Signatures and attestations are in the same index.
fn choose(index: &Index) -> Result<Descriptor, ImageError> {
    let own = elf::own_architecture();
    let images: Vec<&Descriptor> = (index.manifests.iter())
        .filter(|it| it.media_type == oci::MANIFEST_TYPE)
        .filter(|it| !is_attached(it))
        .collect();
    let of_platform = |it: &&&Descriptor| {
        it.platform
            .as_ref()
            .is_none_or(|platform| platform.os == "linux" && platform.architecture == own)
    };
    let matching: Vec<_> = images.iter().filter(of_platform).collect();
    match (matching[..].as_ref(), &images[..]) {
        ([one], _) => Ok((**one).clone()),
        ([], [other, ..]) => {
            let platform = other.platform.clone();
            Err(ImageError::WrongPlatform {
                found: platform
                    .map_or_else(String::new, |it| platform_text(&it.os, &it.architecture)),
                expected: platform_text("linux", own),
            })
        }
        (matching, _) => Err(ImageError::Manifests {
            count: matching.len(),
            architecture: own,
        }),
    }
}

/// True for manifests about another one, which tools mark by name or platform.
fn is_attached(descriptor: &Descriptor) -> bool {
    let name = descriptor.annotations.get(REF_NAME);
    let named = name.is_some_and(|name| {
        name.starts_with("sha256-")
            && [".sig", ".att", ".sbom"]
                .iter()
                .any(|end| name.ends_with(end))
    });
    named || (descriptor.platform.as_ref()).is_some_and(|platform| platform.os == "unknown")
}

fn check_platform(os: &str, architecture: &str) -> Result<(), ImageError> {
    let own = elf::own_architecture();
    if (os, architecture) == ("linux", own) {
        return Ok(());
    }
    Err(ImageError::WrongPlatform {
        found: platform_text(os, architecture),
        expected: platform_text("linux", own),
    })
}

fn platform_text(os: &str, architecture: &str) -> String {
    format!("{os}/{architecture}").chars().take(100).collect()
}

fn check_size(subject: &'static str, expected: u64, found: u64) -> Result<(), ImageError> {
    if expected == found {
        return Ok(());
    }
    Err(ImageError::WrongSize {
        subject,
        expected,
        found,
    })
}

/// Reads a JSON document of the layout that no digest covers.
fn document<T: DeserializeOwned>(
    source: &Source,
    name: &str,
    document: &'static str,
) -> Result<T, ImageError> {
    let (reader, size) = source.file(name)?;
    let bytes = read_document(reader, size, document)?;
    serde_json::from_slice(&bytes).map_err(|source| ImageError::Invalid { document, source })
}

fn blob<T: DeserializeOwned>(
    source: &Source,
    descriptor: &Descriptor,
    document: &'static str,
) -> Result<T, ImageError> {
    let bytes = blob_bytes(source, descriptor, document)?;
    serde_json::from_slice(&bytes).map_err(|source| ImageError::Invalid { document, source })
}

fn blob_bytes(
    source: &Source,
    descriptor: &Descriptor,
    subject: &'static str,
) -> Result<Vec<u8>, ImageError> {
    let (reader, size) = source.file(&oci::blob_name(&descriptor.digest))?;
    check_size(subject, descriptor.size, size)?;
    let bytes = read_document(reader, size, subject)?;
    let found = Digest::of(&bytes);
    if found != descriptor.digest {
        return Err(ImageError::WrongDigest {
            subject,
            expected: descriptor.digest,
            found,
        });
    }
    Ok(bytes)
}

fn read_document(
    reader: impl std::io::Read,
    size: u64,
    subject: &'static str,
) -> Result<Vec<u8>, ImageError> {
    if size > MAX_DOCUMENT_BYTES {
        return Err(ImageError::TooLarge {
            subject,
            limit: MAX_DOCUMENT_BYTES,
        });
    }
    let mut bytes = Vec::new();
    let read = reader.take(size).read_to_end(&mut bytes);
    let read = read.map_err(ImageError::Read)?;
    check_size(subject, size, read as u64)?;
    Ok(bytes)
}
