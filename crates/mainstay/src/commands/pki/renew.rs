//! Certificates of this node again, before they are due; a running daemon takes them up at once.

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
pub enum What {
    /// The node's own certificate
    Node,
    /// The administrator's certificate in <state>/client.yaml
    Client,
}

pub fn run(what: What, state: Option<PathBuf>) -> Outcome {
    let state = state_or_local(state)?;
    let pki = state.join("pki");
    let authority = PkiDir::new(&pki).authority()?;
    let until = match what {
        What::Node => node(&pki, &authority)?,
        What::Client => client(&state.join("client.yaml"), &authority)?,
    };
    anstream::eprintln!("renewed, valid until {until}");
    if what == What::Node
        && let Some(pid) = mainstay_daemon::serving_pid(&state)
    {
        let told = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .is_some_and(|pid| kill_process(pid, Signal::HUP).is_ok());
        anstream::eprintln!(
            "{}",
            if told {
                "the running node uses it from now on"
            } else {
                "restart the node to use it"
            }
        );
    }
    Ok(())
}

/// The same names as before; the daemon adds what is missing by itself.
fn node(pki: &Path, authority: &Authority) -> Outcome<jiff::Timestamp> {
    let failed = |error: &dyn std::error::Error| Failure::caused(Exit::Failed, error);
    let present = std::fs::read_to_string(pki.join("node.crt"))?;
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
    // A crash between the two leaves a pair that does not match, which the daemon mends on start.
    write_durable(&pki.join("node.key"), issued.key.expose().as_bytes(), 0o600)?;
    write_durable(&pki.join("node.crt"), issued.cert.as_bytes(), 0o644)?;
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
