//! Location of the client configuration: the file named, the user's own, or the local node's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use mainstay_identity::{ClientConfig, Context};

use crate::{Error, Options};

/// Returns the selected context and its name.
pub(crate) fn context(options: &Options) -> Result<(String, Context), Error> {
    if has_only_unix_endpoints(options) {
        return Ok(("local".to_owned(), Context::default()));
    }
    let config = load_config(&config_path(options)?)?;
    let (name, context) = config
        .get(options.context.as_deref())
        .map_err(Error::ClientConfig)?;
    Ok((name.to_owned(), context.clone()))
}

/// A unix socket asks for no certificate, so `unix:PATH` needs no configuration at all.
fn has_only_unix_endpoints(options: &Options) -> bool {
    let is_unix = |endpoint: &String| endpoint.starts_with("unix:");
    !options.endpoints.is_empty() && options.endpoints.iter().all(is_unix)
}

/// Reads a client configuration file.
pub fn load_config(path: &Path) -> Result<ClientConfig, Error> {
    ClientConfig::load(path).map_err(Error::ClientConfig)
}

/// Returns the client configuration file to read.
pub fn config_path(options: &Options) -> Result<PathBuf, Error> {
    if let Some(path) = &options.config_file {
        return Ok(path.clone());
    }
    let user = user_config_path();
    if let Some(path) = user.as_ref().filter(|path| path.exists()) {
        return Ok(path.clone());
    }
    let local = options.local_state.as_ref();
    let local = local.map(|state| state.join("client.yaml"));
    if let Some(path) = local.filter(|path| path.exists()) {
        return Ok(path);
    }
    Err(Error::NoClientConfig { expected: user })
}

/// Returns `$XDG_CONFIG_HOME/mainstay/config.yaml`, else `~/.config/mainstay/config.yaml`.
pub fn user_config_path() -> Option<PathBuf> {
    let absolute = |value: Option<OsString>| {
        let path = value.map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    absolute(std::env::var_os("XDG_CONFIG_HOME"))
        .or_else(|| absolute(std::env::var_os("HOME")).map(|home| home.join(".config")))
        .map(|base| base.join("mainstay/config.yaml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_endpoints_need_no_client_configuration() {
        let mut options = Options {
            config_file: Some(PathBuf::from("/nonexistent/client.yaml")),
            endpoints: vec!["unix:/run/a.sock".to_owned()],
            ..Options::default()
        };
        assert!(context(&options).is_ok());
        options.endpoints.push("node1".to_owned());
        assert!(matches!(context(&options), Err(Error::ClientConfig(_))));
    }
}
