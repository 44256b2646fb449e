//! Shows names, roles and expiry of certificates.

use std::path::{Path, PathBuf};

use mainstay_client::chain;
use mainstay_identity::{CertificateInfo, ClientConfig};
use serde_json::{Value, json};

use super::state_or_local;
use crate::cli::{Format, Global};
use crate::failure::{Exit, Failure, Outcome};
use crate::output;
use mainstay_client::format::Table;

type Found = (String, CertificateInfo);

pub fn run(global: &Global, path: Option<PathBuf>) -> Outcome {
    let found = match path {
        Some(path) => in_path(&path)?,
        None => {
            let state = state_or_local(None)?;
            let mut found = in_dir(&state.join("pki"))?;
            found.extend(in_file(&state.join("client.yaml")).unwrap_or_default());
            found
        }
    };
    if found.is_empty() {
        return Err(Failure::new(
            Exit::NotFound,
            "no certificates found; name a PEM file, a client configuration or a PKI directory",
        ));
    }
    match global.output {
        Format::Table => {
            let mut table =
                Table::new(&["FILE", "NAME", "ORGANIZATION", "SERIAL", "EXPIRES", "NAMES"]);
            for (file, info) in &found {
                table.row(vec![
                    file.clone(),
                    info.subject_cn.clone(),
                    info.organizations.join(","),
                    info.serial.clone(),
                    info.not_after.to_string(),
                    info.sans.join(","),
                ]);
            }
            output::print(&table.to_string())
        }
        format => {
            let all: Vec<Value> = found.iter().map(|(file, info)| value(file, info)).collect();
            output::print_document(format, &Value::from(all))
        }
    }
}

fn value(file: &str, info: &CertificateInfo) -> Value {
    json!({
        "file": file,
        "name": info.subject_cn,
        "organizations": info.organizations,
        "serial": info.serial,
        "fingerprint": info.fingerprint,
        "notBefore": info.not_before.to_string(),
        "notAfter": info.not_after.to_string(),
        "names": info.sans,
        "issuer": info.issuer_cn,
        "ca": info.is_ca,
    })
}

fn in_path(path: &Path) -> Outcome<Vec<Found>> {
    if path.is_dir() {
        in_dir(path)
    } else {
        in_file(path)
    }
}

fn in_dir(dir: &Path) -> Outcome<Vec<Found>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .map_err(|error| {
            Failure::new(
                Exit::NotFound,
                format!("cannot read {}: {error}", dir.display()),
            )
        })?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "crt"))
        .collect();
    files.sort();
    let mut found = Vec::new();
    for file in files {
        found.extend(in_file(&file)?);
    }
    Ok(found)
}

/// Reads a PEM certificate, or a client configuration with one per context.
fn in_file(path: &Path) -> Outcome<Vec<Found>> {
    let file = path.display().to_string();
    if path
        .extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml")
    {
        // Only public parts are shown, so the mode of the file does not matter.
        let (config, _) = ClientConfig::load_shared(path)
            .map_err(|error| Failure::caused(Exit::Failed, &error))?;
        return Ok(config
            .contexts
            .iter()
            .filter_map(|(name, context)| {
                let info = CertificateInfo::from_pem(context.crt.as_deref()?).ok()?;
                Some((format!("{file}#{name}"), info))
            })
            .collect());
    }
    let pem = std::fs::read_to_string(path)
        .map_err(|error| Failure::new(Exit::NotFound, format!("cannot read {file}: {error}")))?;
    let info = CertificateInfo::from_pem(&pem).map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("invalid certificate {file}: {}", chain(&error)),
        )
    })?;
    Ok(vec![(file, info)])
}
