//! Renews certificates of this node; a running daemon reloads them.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use mainstay_identity::pki::{CLIENT_TTL, NODE_TTL};
use mainstay_identity::{
    Authority, CertificateInfo, ClientConfig, ClientSpec, NodeNames, PkiDir, Role,
};
use mainstay_records::write_durable;
use rustix::process::{Pid, Signal, kill_process};

use super::state_or_local;
use crate::failure::{Exit, Failure, Outcome};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Certificate {
    /// Node certificate
    Node,
    /// Administrator certificate in <state>/client.yaml
    Client,
}

pub fn run(certificate: Certificate, state: Option<PathBuf>) -> Outcome {
    let state = state_or_local(state)?;
    let pki = state.join("pki");
    let authority = PkiDir::new(&pki).authority()?;
    let expires = match certificate {
        Certificate::Node => node(&pki, &authority)?,
        Certificate::Client => client(&state.join("client.yaml"), &authority)?,
    };
    anstream::eprintln!("certificate renewed, valid until {expires}");
    if certificate == Certificate::Node
        && let Some(pid) = mainstay_daemon::serving_pid(&state)
    {
        let signalled = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .is_some_and(|pid| kill_process(pid, Signal::HUP).is_ok());
        anstream::eprintln!(
            "{}",
            if signalled {
                "the running daemon uses it from now on"
            } else {
                "cannot signal the running daemon; restart it to use the certificate"
            }
        );
    }
    Ok(())
}

/// Renews the node certificate with its present names.
fn node(pki: &Path, authority: &Authority) -> Outcome<jiff::Timestamp> {
    let failed = |error: &dyn std::error::Error| Failure::caused(Exit::Failed, error);
    let path = pki.join("node.crt");
    let present =
        std::fs::read_to_string(&path).map_err(|error| Failure::file("read", &path, &error))?;
    let present = CertificateInfo::from_pem(&present).map_err(|error| failed(&error))?;
    let mut names = NodeNames {
        common_name: present.subject_cn.clone(),
        dns: Vec::new(),
        ips: Vec::new(),
    };
    for san in &present.sans {
        match san.parse() {
            Ok(ip) => names.ips.push(ip),
            Err(_) => names.dns.push(san.clone()),
        }
    }
    let issued = authority.issue_node(&names, NODE_TTL)?;
    // After a crash between the two writes the daemon replaces the mismatched pair on start.
    for (file, text, mode) in [
        ("node.key", issued.key.expose(), 0o600),
        ("node.crt", &issued.cert, 0o644),
    ] {
        let path = pki.join(file);
        write_durable(&path, text.as_bytes(), mode)
            .map_err(|error| Failure::file("write", &path, &error))?;
    }
    Ok(issued.info.not_after)
}

fn client(path: &Path, authority: &Authority) -> Outcome<jiff::Timestamp> {
    let failed = |error: &dyn std::error::Error| Failure::caused(Exit::Failed, error);
    let mut config = ClientConfig::load(path).map_err(|error| failed(&error))?;
    let spec = ClientSpec {
        name: "admin".to_owned(),
        roles: vec![Role::Admin],
        ttl: CLIENT_TTL,
    };
    let issued = authority.issue_client(&spec)?;
    let name = config.context.clone();
    let context = config.contexts.entry(name).or_default();
    context.ca = Some(issued.ca);
    context.crt = Some(issued.cert);
    context.key = Some(issued.key);
    config.save(path).map_err(|error| failed(&error))?;
    Ok(issued.info.not_after)
}
