//! Writes upgrade images. The same inputs give the same bytes.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write};
use std::path::{Path, PathBuf};

use flate2::Compression as Level;
use flate2::write::GzEncoder;

use super::error::KeyError;
use super::oci::{
    Annotations, CONFIG_TYPE, Descriptor, GZIP_TYPE, INDEX_FILE, INDEX_TYPE, ImageConfig, Index,
    LAYOUT, LAYOUT_FILE, MANIFEST_TYPE, Manifest, Platform, Process, REF_NAME, RootFs, TAR_TYPE,
    blob_name,
};
use super::signature::{self, SigningKey};
use super::{BINARY, DEFAULT_BINARY, REVISION, STATE_FORMAT, VERSION};
use crate::digest::Hasher;
use crate::{BuildFacts, Digest, Stamp, elf};

/// The reason an image cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The binary cannot be read.
    #[error("cannot read binary {}", .path.display())]
    Binary {
        /// The file.
        path: PathBuf,
        /// The error of the read.
        source: io::Error,
    },
    /// The file cannot become the binary of a node.
    #[error("{} is no mainstay for Linux", .path.display())]
    NotMainstay {
        /// The file.
        path: PathBuf,
    },
    /// The image cannot be written.
    #[error("cannot write the upgrade image")]
    Write(#[from] io::Error),
    /// A document cannot be encoded.
    #[error("cannot encode the upgrade image")]
    Encode(#[from] serde_json::Error),
    /// The key cannot sign.
    #[error("cannot sign the upgrade image")]
    Sign(#[from] KeyError),
}

/// Another file of the image, for containers that are started from it.
#[derive(Debug, Clone)]
struct Extra {
    path: String,
    mode: u32,
    content: Vec<u8>,
}

/// An image to write.
#[derive(Debug)]
pub struct ImageWriter<'a> {
    binary: File,
    facts: BuildFacts,
    architecture: &'static str,
    created: Option<String>,
    key: Option<&'a SigningKey>,
    gzip: bool,
    extras: Vec<Extra>,
}

impl<'a> ImageWriter<'a> {
    /// An image of the binary at `path`, with the facts of its stamp.
    pub fn of(path: &Path) -> Result<Self, WriteError> {
        let unreadable = |source| WriteError::Binary {
            path: path.to_owned(),
            source,
        };
        let mut binary = File::open(path).map_err(unreadable)?;
        let architecture = elf::architecture(&binary).map_err(unreadable)?;
        let facts = Stamp::find(&binary).map_err(unreadable)?;
        binary.rewind().map_err(unreadable)?;
        let (Some(architecture), Some(facts)) = (architecture, facts) else {
            return Err(WriteError::NotMainstay {
                path: path.to_owned(),
            });
        };
        Ok(Self {
            binary,
            facts,
            architecture,
            created: None,
            key: None,
            gzip: true,
            extras: Vec::new(),
        })
    }

    /// Sets the time of creation, RFC 3339. Without one, the image has none and is reproducible.
    pub fn created(mut self, time: String) -> Self {
        self.created = Some(time);
        self
    }

    /// Signs the image.
    pub fn signed_by(mut self, key: &'a SigningKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Leaves the layer uncompressed.
    pub fn uncompressed(mut self) -> Self {
        self.gzip = false;
        self
    }

    /// Adds a file to the layer, for containers.
    pub fn file(mut self, path: &str, mode: u32, content: Vec<u8>) -> Self {
        self.extras.push(Extra {
            path: path.to_owned(),
            mode,
            content,
        });
        self
    }

    /// Facts about the binary.
    pub fn facts(&self) -> &BuildFacts {
        &self.facts
    }

    /// The architecture of the binary.
    pub fn architecture(&self) -> &'static str {
        self.architecture
    }

    /// Writes the image as a tar archive of an OCI layout. `scratch` is a directory for the layer
    /// meanwhile. Returns the digest of the manifest.
    pub fn write(mut self, output: impl Write, scratch: &Path) -> Result<Digest, WriteError> {
        let (mut layer_file, layer, diff_id) = self.layer(scratch)?;
        let mut archive = tar::Builder::new(output);
        append(&mut archive, LAYOUT_FILE, LAYOUT.as_bytes())?;
        append_directory(&mut archive, "blobs/")?;
        append_directory(&mut archive, "blobs/sha256/")?;

        let mut header = header(layer.size, 0o644);
        archive.append_data(&mut header, blob_name(&layer.digest), &mut layer_file)?;
        let config = serde_json::to_vec(&self.config(diff_id))?;
        let config = append_blob(&mut archive, CONFIG_TYPE, &config)?;
        let manifest = serde_json::to_vec(&Manifest {
            schema_version: 2,
            media_type: MANIFEST_TYPE.to_owned(),
            config,
            layers: vec![layer],
            annotations: self.annotations(),
        })?;
        let mut manifest = append_blob(&mut archive, MANIFEST_TYPE, &manifest)?;
        let digest = manifest.digest;
        manifest.platform = Some(self.platform());
        let name = self.facts.version.clone();
        manifest.annotations.insert(REF_NAME.to_owned(), name);
        let mut manifests = vec![manifest];
        if let Some(key) = self.key {
            manifests.push(append_signature(&mut archive, key, digest)?);
        }
        let index = serde_json::to_vec(&Index {
            schema_version: 2,
            media_type: INDEX_TYPE.to_owned(),
            manifests,
        })?;
        append(&mut archive, INDEX_FILE, &index)?;
        archive.into_inner()?.flush()?;
        Ok(digest)
    }

    /// Writes the layer to a file without a name. Returns its descriptor and the digest of the
    /// uncompressed layer.
    fn layer(&mut self, scratch: &Path) -> Result<(File, Descriptor, Digest), WriteError> {
        let mut file = crate::scratch_file(scratch)?;
        let diff_id = if self.gzip {
            let mut encoder = GzEncoder::new(&mut file, Level::default());
            let diff_id = self.layer_archive(&mut encoder)?;
            encoder.finish()?;
            diff_id
        } else {
            self.layer_archive(&mut file)?
        };
        let size = file.stream_position()?;
        file.rewind()?;
        let digest = Digest::of_reader(&file)?;
        file.rewind()?;
        let media_type = if self.gzip { GZIP_TYPE } else { TAR_TYPE };
        let layer = descriptor(media_type, digest, size);
        Ok((file, layer, diff_id))
    }

    fn layer_archive(&mut self, output: impl Write) -> Result<Digest, WriteError> {
        let mut archive = tar::Builder::new(Tee {
            output,
            hasher: Hasher::new(),
        });
        let size = self.binary.metadata()?.len();
        append_directory(&mut archive, "usr/")?;
        append_directory(&mut archive, "usr/bin/")?;
        let mut binary = (&mut self.binary).take(size);
        archive.append_data(&mut header(size, 0o755), DEFAULT_BINARY, &mut binary)?;
        for extra in &self.extras {
            let mut header = header(extra.content.len() as u64, extra.mode);
            archive.append_data(&mut header, &extra.path, &extra.content[..])?;
        }
        Ok(archive.into_inner()?.hasher.finish())
    }

    fn platform(&self) -> Platform {
        Platform {
            architecture: self.architecture.to_owned(),
            os: "linux".to_owned(),
        }
    }

    fn annotations(&self) -> Annotations {
        let facts = &self.facts;
        let mut annotations = Annotations::from([
            (VERSION.to_owned(), facts.version.clone()),
            (REVISION.to_owned(), facts.sha.clone()),
            (STATE_FORMAT.to_owned(), facts.state_format.to_string()),
            (BINARY.to_owned(), DEFAULT_BINARY.to_owned()),
        ]);
        if let Some(created) = &self.created {
            annotations.insert(
                "org.opencontainers.image.created".to_owned(),
                created.clone(),
            );
        }
        annotations
    }

    fn config(&self, diff_id: Digest) -> ImageConfig {
        ImageConfig {
            created: self.created.clone(),
            platform: self.platform(),
            config: Process {
                entrypoint: Some(vec![format!("/{DEFAULT_BINARY}")]),
                cmd: Some(vec!["serve".to_owned()]),
                labels: Some(self.annotations()),
            },
            rootfs: RootFs {
                kind: "layers".to_owned(),
                diff_ids: vec![diff_id],
            },
        }
    }
}

fn append_signature(
    archive: &mut tar::Builder<impl Write>,
    key: &SigningKey,
    manifest: Digest,
) -> Result<Descriptor, WriteError> {
    let (payload, signature) = key.sign(manifest)?;
    let mut layer = append_blob(archive, signature::PAYLOAD_TYPE, &payload)?;
    let annotation = signature::SIGNATURE_ANNOTATION.to_owned();
    layer.annotations.insert(annotation, signature);
    let config = serde_json::to_vec(&serde_json::json!({
        "architecture": "", "os": "", "config": {},
        "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
    }))?;
    let config = append_blob(archive, CONFIG_TYPE, &config)?;
    let document = serde_json::to_vec(&Manifest {
        schema_version: 2,
        media_type: MANIFEST_TYPE.to_owned(),
        config,
        layers: vec![layer],
        annotations: Annotations::new(),
    })?;
    let mut descriptor = append_blob(archive, MANIFEST_TYPE, &document)?;
    let name = signature::reference(&manifest);
    descriptor.annotations.insert(REF_NAME.to_owned(), name);
    Ok(descriptor)
}

fn append_blob(
    archive: &mut tar::Builder<impl Write>,
    media_type: &str,
    bytes: &[u8],
) -> io::Result<Descriptor> {
    let digest = Digest::of(bytes);
    append(archive, &blob_name(&digest), bytes)?;
    Ok(descriptor(media_type, digest, bytes.len() as u64))
}

fn append(archive: &mut tar::Builder<impl Write>, name: &str, bytes: &[u8]) -> io::Result<()> {
    archive.append_data(&mut header(bytes.len() as u64, 0o644), name, bytes)
}

fn append_directory(archive: &mut tar::Builder<impl Write>, name: &str) -> io::Result<()> {
    let mut header = header(0, 0o755);
    header.set_entry_type(tar::EntryType::Directory);
    archive.append_data(&mut header, name, io::empty())
}

fn header(size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn descriptor(media_type: &str, digest: Digest, size: u64) -> Descriptor {
    Descriptor {
        media_type: media_type.to_owned(),
        digest,
        size,
        platform: None,
        annotations: Annotations::new(),
    }
}

/// A writer that hashes what passes.
struct Tee<W> {
    output: W,
    hasher: Hasher,
}

impl<W: Write> Write for Tee<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.output.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}
