//! Which client configuration is used: the one named, the user's own, or the local node's.

use std::path::{Path, PathBuf};

use mainstay_identity::{ClientConfig, Context};

use crate::cli::Global;
use crate::failure::{Exit, Failure, Outcome};

/// The context to use, with its name.
pub fn context(global: &Global) -> Outcome<(String, Context)> {
    if let Some(context) = socket_only(global) {
        return Ok(("local".to_owned(), context));
    }
    let path = config_path(global)?;
    let config = load(&path)?;
    let (name, context) = config
        .get(global.context.as_deref())
        .map_err(|error| Failure::caused(Exit::Usage, &error))?;
    Ok((name.to_owned(), context.clone()))
}

/// A unix socket asks for no certificate, so `-e unix:PATH` needs no configuration at all.
fn socket_only(global: &Global) -> Option<Context> {
    let all_unix = !global.endpoints.is_empty()
        && global
            .endpoints
            .iter()
            .all(|endpoint| endpoint.starts_with("unix:"));
    all_unix.then(Context::default)
}

pub fn load(path: &Path) -> Outcome<ClientConfig> {
    ClientConfig::load(path).map_err(|error| Failure::caused(Exit::Usage, &error))
}

/// The file to read: named by option or `$MAINSTAY_CONFIG`, else the user's own, else the one of
/// the node that runs here under this user.
pub fn config_path(global: &Global) -> Outcome<PathBuf> {
    if let Some(path) = &global.client_config {
        return Ok(path.clone());
    }
    let own = user_config_path();
    if let Some(path) = own.as_ref().filter(|path| path.exists()) {
        return Ok(path.clone());
    }
    if let Some(path) = local_client_config().filter(|path| path.exists()) {
        return Ok(path);
    }
    let looked = own.map_or_else(String::new, |path| format!(" at {}", path.display()));
    Err(Failure::usage(format!(
        "no client configuration{looked}, and no node runs here under this user; get a client.yaml \
         from the node's administrator and run mainstay config merge client.yaml"
    )))
}

/// The file that `mainstay config` changes; the local node's own file is never edited by hand.
pub fn writable_config_path(global: &Global) -> Outcome<PathBuf> {
    global
        .client_config
        .clone()
        .or_else(user_config_path)
        .ok_or_else(|| {
            Failure::usage("no home directory is known; name the file with --client-config FILE")
        })
}

fn user_config_path() -> Option<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute("XDG_CONFIG_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".config")))
        .map(|base| base.join("mainstay/config.yaml"))
}

/// `<state>/client.yaml` of the node that this user runs here.
pub fn local_client_config() -> Option<PathBuf> {
    local_state().map(|state| state.join("client.yaml"))
}

/// `$MAINSTAY_STATE`, else the default state directory of this user.
pub fn local_state() -> Option<PathBuf> {
    match std::env::var_os("MAINSTAY_STATE") {
        Some(state) => Some(PathBuf::from(state)),
        None => mainstay_daemon::config::default_state().ok(),
    }
}
