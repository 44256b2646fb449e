//! `<state>/client.yaml`: the administrator's way in, made on first start and kept usable.

use std::path::Path;
use std::time::Duration;

use mainstay_identity::client_config::ClientConfigError;
use mainstay_identity::{
    Authority, CertificateInfo, ClientConfig, ClientSpec, Context, PkiError, Role,
};

/// The administrator's certificate is made anew by the daemon long before this has passed.
const LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[derive(Debug, thiserror::Error)]
pub enum ClientFileError {
    #[error("the administrator's client configuration cannot be used")]
    Config(#[from] ClientConfigError),
    #[error("the administrator's certificate cannot be issued")]
    Issue(#[from] PkiError),
}

impl ClientFileError {
    /// Whether others can read the file, so that its key may be known to them.
    pub fn is_permission_problem(&self) -> bool {
        matches!(self, Self::Config(error) if error.is_permission_problem())
    }
}

/// What the file must say.
#[derive(Debug)]
pub struct Wanted<'a> {
    pub context: &'a str,
    pub endpoint: &'a str,
    pub ca_pem: &'a str,
}

/// Writes the file unless what is there will do. `Ok(true)` when it was written.
pub fn ensure(
    path: &Path,
    authority: &Authority,
    wanted: &Wanted<'_>,
    now: jiff::Timestamp,
) -> Result<bool, ClientFileError> {
    match ClientConfig::load(path) {
        Ok(present) if still_good(&present, wanted, now) => return Ok(false),
        // A file that others can read is never replaced silently: the key may be known to them.
        Err(error) if error.is_permission_problem() => return Err(error.into()),
        _ => {}
    }
    let spec = ClientSpec {
        name: "admin".to_owned(),
        roles: vec![Role::Admin],
        ttl: LIFETIME,
    };
    let issued = authority.issue_client_at(&spec, now)?;
    let context = Context {
        endpoints: vec![wanted.endpoint.to_owned()],
        ca: Some(wanted.ca_pem.to_owned()),
        crt: Some(issued.cert),
        key: Some(issued.key),
        ..Context::default()
    };
    let mut config = ClientConfig {
        context: wanted.context.to_owned(),
        ..ClientConfig::default()
    };
    config.contexts.insert(wanted.context.to_owned(), context);
    config.save(path)?;
    Ok(true)
}

fn still_good(present: &ClientConfig, wanted: &Wanted<'_>, now: jiff::Timestamp) -> bool {
    let Some(context) = present.contexts.get(wanted.context) else {
        return false;
    };
    let fresh = context.crt.as_deref().is_some_and(|pem| {
        CertificateInfo::from_pem(pem).is_ok_and(|certificate| !certificate.renew_due(now))
    });
    fresh && context.endpoints == [wanted.endpoint] && context.ca.as_deref() == Some(wanted.ca_pem)
}
