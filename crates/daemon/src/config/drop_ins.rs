//! Drop-ins: `services.d/*.toml` beside the configuration file, each with services of its own.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use mainstay_supervisor::{ServiceName, graph};
use serde::Deserialize;

use super::settings::{read_file, shorten_lines};
use super::{ConfigError, Settings};
use crate::engines::services::{ServicesSection, definitions};

/// The directory beside the configuration file.
const DIRECTORY: &str = "services.d";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DropIn {
    #[serde(default)]
    services: ServicesSection,
}

/// Adds the services of all drop-ins, and checks them together with those of the file.
pub(super) fn add(file: &Path, settings: &mut Settings) -> Result<(), ConfigError> {
    let mut origins: BTreeMap<ServiceName, PathBuf> = BTreeMap::new();
    for name in settings.services.keys() {
        origins.insert(name.clone(), file.to_owned());
    }
    for path in list(&file.with_file_name(DIRECTORY))? {
        let text = read_file(&path)?;
        let drop_in: DropIn = toml::from_str(&text).map_err(|error| ConfigError::Invalid {
            path: path.clone(),
            message: shorten_lines(error.to_string().trim_end()),
        })?;
        for (service, section) in drop_in.services {
            if let Some(first) = origins.insert(service.clone(), path.clone()) {
                return Err(ConfigError::ServiceTwice {
                    service: service.to_string(),
                    first,
                    second: path,
                });
            }
            settings.services.insert(service, section);
        }
    }
    check(&settings.services, &origins)
}

/// Checks what takes all services together: references, cycles, and values that no file can hold.
fn check(
    services: &ServicesSection,
    origins: &BTreeMap<ServiceName, PathBuf>,
) -> Result<(), ConfigError> {
    for (service, section) in services {
        if let Err(source) = section.definition(service) {
            let path = origins.get(service).cloned().unwrap_or_default();
            return Err(ConfigError::Service { path, source });
        }
    }
    let checked = definitions(services).map(|definitions| {
        let plain = definitions
            .into_iter()
            .map(|(name, definition)| (name, (*definition).clone()));
        graph::check(&plain.collect())
    });
    match checked {
        Ok(Ok(())) => Ok(()),
        Ok(Err(source)) => Err(ConfigError::ServiceGraph { source }),
        Err(source) => Err(ConfigError::Service {
            path: PathBuf::new(),
            source,
        }),
    }
}

/// Lists the drop-ins in the order of their names. Without a directory there are none.
fn list(directory: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable {
        path: directory.to_owned(),
        source,
    };
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(unreadable)?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().unwrap_or_default();
        // Not those that an editor leaves: `.web.toml.swp`, `web.toml~`.
        let is_hidden = name.as_encoded_bytes().starts_with(b".");
        if path.extension() == Some(OsStr::new("toml")) && !is_hidden {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}
