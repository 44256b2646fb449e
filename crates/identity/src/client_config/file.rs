//! The YAML form of the client configuration. The text is parsed twice: into typed fields, whose
//! errors have a line number, and as a whole, to preserve unknown keys.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::net::Ipv6Addr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mainstay_records::write_durable;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{ClientConfig, ClientConfigError, Context};
use crate::private_key::PrivateKeyPem;

/// A malformed part of the text.
pub(super) struct Fault {
    line: u64,
    problem: String,
}

impl Fault {
    pub(super) fn in_file(self, path: &Path) -> ClientConfigError {
        let Self { line, problem } = self;
        ClientConfigError::Malformed {
            path: path.to_owned(),
            line,
            problem,
        }
    }
}

impl From<serde_saphyr::Error> for Fault {
    fn from(error: serde_saphyr::Error) -> Self {
        Self {
            line: error.location().map_or(1, |at| at.line()),
            problem: problem(error.without_snippet()),
        }
    }
}

/// Describes an error without quoting the file: a private key may be anywhere in it, also where it
/// does not belong.
fn problem(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    match error {
        // Only the deserializers below create such errors.
        Error::Message { msg, .. } => msg.clone(),
        Error::Eof { .. } => "unexpected end of file".to_owned(),
        Error::Unexpected { expected, .. } => format!("expected {expected}"),
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            format!("expected {expected}")
        }
        Error::SerdeMissingField { field, .. } => format!("{field} is missing"),
        Error::DuplicateMappingKey { .. } => "duplicate key in a mapping".to_owned(),
        Error::InvalidUtf8Input => "the text is not UTF-8".to_owned(),
        _ => "this is not the YAML of a client configuration".to_owned(),
    }
}

#[derive(Serialize, Deserialize)]
struct FileForm {
    context: Option<String>,
    contexts: Option<BTreeMap<String, ContextForm>>,
    #[serde(flatten, skip_deserializing)]
    extra: BTreeMap<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct ContextForm {
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoints: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    socket: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca: Option<EncodedPem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    crt: Option<EncodedPem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<EncodedPem>,
    #[serde(flatten, skip_deserializing)]
    extra: BTreeMap<String, Value>,
}

/// PEM text, encoded as base64 in the file.
struct EncodedPem(String);

impl Serialize for EncodedPem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for EncodedPem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut text = String::deserialize(deserializer)?;
        text.retain(|c| !c.is_ascii_whitespace());
        STANDARD
            .decode(text)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .filter(|pem| pem.contains("-----BEGIN "))
            .map(Self)
            .ok_or_else(|| D::Error::custom("the value is not a PEM text in base64"))
    }
}

pub(super) fn parse(bytes: &[u8]) -> Result<ClientConfig, Fault> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let breaks = before.iter().filter(|byte| **byte == b'\n').count();
        let line = u64::try_from(breaks).unwrap_or(u64::MAX).saturating_add(1);
        Fault {
            line,
            problem: "not UTF-8 text".to_owned(),
        }
    })?;
    if text.trim().is_empty() {
        return Ok(ClientConfig::default());
    }
    let form: FileForm = serde_saphyr::from_str(text)?;
    let mut whole: Map<String, Value> = serde_saphyr::from_str(text)?;
    let mut whole_contexts = match whole.remove("contexts") {
        Some(Value::Object(contexts)) => contexts,
        _ => Map::new(),
    };
    whole.remove("context");
    let contexts = form
        .contexts
        .unwrap_or_default()
        .into_iter()
        .map(|(name, form)| {
            let extra = match whole_contexts.remove(&name) {
                Some(Value::Object(keys)) => not_ours(keys),
                _ => BTreeMap::new(),
            };
            (name, form.into_context(extra))
        });
    Ok(ClientConfig {
        context: form.context.unwrap_or_default(),
        contexts: contexts.collect(),
        extra: whole.into_iter().collect(),
    })
}

fn not_ours(keys: Map<String, Value>) -> BTreeMap<String, Value> {
    const OURS: [&str; 6] = ["endpoints", "nodes", "socket", "ca", "crt", "key"];
    keys.into_iter()
        .filter(|(key, _)| !OURS.contains(&key.as_str()))
        .collect()
}

impl ContextForm {
    fn into_context(self, extra: BTreeMap<String, Value>) -> Context {
        Context {
            endpoints: self.endpoints.unwrap_or_default(),
            nodes: self.nodes.unwrap_or_default(),
            socket: self.socket,
            ca: self.ca.map(|pem| pem.0),
            crt: self.crt.map(|pem| pem.0),
            key: self.key.map(|pem| PrivateKeyPem::new(pem.0)),
            extra,
        }
    }

    fn from_context(context: &Context) -> Self {
        let encoded = |pem: &str| EncodedPem(pem.to_owned());
        Self {
            endpoints: Some(context.endpoints.iter().map(|e| written(e)).collect()),
            nodes: (!context.nodes.is_empty()).then(|| context.nodes.clone()),
            socket: context.socket.clone(),
            ca: context.ca.as_deref().map(encoded),
            crt: context.crt.as_deref().map(encoded),
            key: context.key.as_ref().map(|key| encoded(key.expose())),
            extra: context.extra.clone(),
        }
    }
}

/// Returns an endpoint without the default port: existing clients append it themselves and fail on
/// one that is there. Other ports are kept, which this client reads.
fn written(endpoint: &str) -> String {
    let host = match endpoint.strip_suffix(":50000") {
        Some(host) if !host.is_empty() && host != "unix" => host,
        _ => return endpoint.to_owned(),
    };
    let unbracketed = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .filter(|address| address.parse::<Ipv6Addr>().is_ok());
    match unbracketed {
        Some(address) => address.to_owned(),
        None if host.contains([':', '[', ']', '/']) => endpoint.to_owned(),
        None => host.to_owned(),
    }
}

pub(super) fn to_yaml(config: &ClientConfig) -> Result<String, ClientConfigError> {
    let contexts = config.contexts.iter();
    let form = FileForm {
        context: Some(config.context.clone()),
        contexts: Some(
            contexts
                .map(|(name, one)| (name.clone(), ContextForm::from_context(one)))
                .collect(),
        ),
        extra: config.extra.clone(),
    };
    Ok(serde_saphyr::to_string(&form)?)
}

pub(super) fn save(config: &ClientConfig, path: &Path) -> Result<(), ClientConfigError> {
    let text = to_yaml(config)?;
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let written = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)
        }
        _ => Ok(()),
    }
    .and_then(|()| write_durable(&target, text.as_bytes(), 0o600));
    written.map_err(|source| ClientConfigError::Write {
        path: path.to_owned(),
        source,
    })
}
