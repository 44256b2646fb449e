//! The parts of the OCI image format that an upgrade image uses, as serde types.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Digest;

pub(super) const LAYOUT_FILE: &str = "oci-layout";
pub(super) const INDEX_FILE: &str = "index.json";
pub(super) const LAYOUT: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;

pub(super) const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
pub(super) const TAR_TYPE: &str = "application/vnd.oci.image.layer.v1.tar";
pub(super) const GZIP_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const DOCKER_GZIP_TYPE: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
const DOCKER_TAR_TYPE: &str = "application/vnd.docker.image.rootfs.diff.tar";

pub(super) const REF_NAME: &str = "org.opencontainers.image.ref.name";

pub(super) type Annotations = BTreeMap<String, String>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Platform {
    pub architecture: String,
    pub os: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    pub media_type: String,
    pub digest: Digest,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "Annotations::is_empty")]
    pub annotations: Annotations,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Index {
    pub schema_version: u32,
    #[serde(default)]
    pub media_type: String,
    pub manifests: Vec<Descriptor>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    pub schema_version: u32,
    #[serde(default)]
    pub media_type: String,
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "Annotations::is_empty")]
    pub annotations: Annotations,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ImageConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    #[serde(flatten)]
    pub platform: Platform,
    #[serde(default)]
    pub config: Process,
    pub rootfs: RootFs,
}

/// The way a container of the image is started; upgrades use only its labels.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Process {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmd: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Annotations>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RootFs {
    #[serde(rename = "type")]
    pub kind: String,
    pub diff_ids: Vec<Digest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
}

pub(super) fn compression(media_type: &str) -> Option<Compression> {
    match media_type {
        TAR_TYPE | DOCKER_TAR_TYPE => Some(Compression::None),
        GZIP_TYPE | DOCKER_GZIP_TYPE => Some(Compression::Gzip),
        _ => None,
    }
}

/// The name of a blob in the layout.
pub(super) fn blob_name(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}
