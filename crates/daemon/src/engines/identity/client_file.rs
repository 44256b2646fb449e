//! `<state>/client.yaml`: the administrator's client configuration, created on the first start
//! and kept valid.

use std::path::Path;
use std::time::Duration;

use mainstay_identity::client_config::ClientConfigError;
use mainstay_identity::{
    Authority, CertificateInfo, ClientConfig, ClientSpec, Context, PkiError, Role,
};

/// The daemon renews the administrator's certificate long before this has passed.
const LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[derive(Debug, thiserror::Error)]
pub enum ClientFileError {
    #[error("cannot use the administrator's client configuration")]
    Config(#[from] ClientConfigError),
    #[error("cannot issue the administrator's certificate")]
    Issue(#[from] PkiError),
}

impl ClientFileError {
    /// Returns whether others can read the file, so that they may know its key.
    pub fn is_permission_problem(&self) -> bool {
        matches!(self, Self::Config(error) if error.is_permission_problem())
    }
}

/// The content that the file must have.
#[derive(Debug)]
pub struct Wanted<'a> {
    pub context: &'a str,
    pub endpoint: &'a str,
    pub ca_pem: &'a str,
}

/// Writes the file unless the present one is still valid; returns whether it was written.
pub fn ensure(
    path: &Path,
    authority: &Authority,
    wanted: &Wanted<'_>,
    now: jiff::Timestamp,
) -> Result<bool, ClientFileError> {
    match ClientConfig::load(path) {
        Ok(mut present) => match present.contexts.get_mut(wanted.context) {
            Some(context) if has_valid_credentials(context, wanted, now) => {
                let endpoints = [wanted.endpoint];
                if context.endpoints == endpoints {
                    return Ok(false);
                }
                context.endpoints = endpoints.map(str::to_owned).to_vec();
                present.save(path)?;
                return Ok(true);
            }
            _ => {}
        },
        // A file that others can read is never replaced silently: they may know its key.
        Err(error) if error.is_permission_problem() => return Err(error.into()),
        Err(_) => {}
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

fn has_valid_credentials(context: &Context, wanted: &Wanted<'_>, now: jiff::Timestamp) -> bool {
    let fresh = context.crt.as_deref().is_some_and(|pem| {
        CertificateInfo::from_pem(pem).is_ok_and(|certificate| !certificate.renew_due(now))
    });
    fresh && context.key.is_some() && context.ca.as_deref() == Some(wanted.ca_pem)
}
