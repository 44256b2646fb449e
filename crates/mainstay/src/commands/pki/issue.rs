//! New certificates: an authority, a client's, a node's.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use mainstay_daemon::config::CertificateName;
use mainstay_identity::{Authority, ClientConfig, ClientSpec, Context, IssuedPem, NodeNames, Role};
use mainstay_records::write_durable;

use super::{authority, certificate_name, role, state_or_local, ttl};
use crate::cli::Global;
use crate::failure::{Exit, Failure, Outcome};
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay pki client --name alice --role os:reader --ttl 24h > alice.yaml\n  \
    mainstay pki client --name ci --role os:operator -e 10.0.0.5 --out ci.yaml\n  \
    mainstay pki client --name bob --role os:admin --pem bob-files")]
pub struct Client {
    /// Who it is for; stands in the audit log
    #[arg(long)]
    name: String,
    /// os:reader, os:operator or os:admin
    #[arg(long, value_parser = role)]
    role: Role,
    /// How long it is valid
    #[arg(long, value_name = "TIME", default_value = "365days", value_parser = ttl)]
    ttl: Duration,
    /// The directory with ca.crt and ca.key [default: this node's own]
    #[arg(long, value_name = "DIR")]
    ca: Option<PathBuf>,
    /// Write the client configuration to this file instead of stdout
    #[arg(long, value_name = "FILE", conflicts_with = "pem")]
    out: Option<PathBuf>,
    /// Write ca.crt, client.crt and client.key into this directory instead
    #[arg(long, value_name = "DIR")]
    pem: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay pki node --name node2 --san node2.example.org --san 10.0.0.6 --out node2-pki\n\n\
    Copy the directory to the new node as <state>/pki before its first start")]
pub struct Node {
    /// The node's host name
    #[arg(long)]
    name: String,
    /// A further name or address it is called by; can be repeated
    #[arg(long = "san", value_name = "NAME", value_parser = certificate_name)]
    sans: Vec<CertificateName>,
    /// How long it is valid
    #[arg(long, value_name = "TIME", default_value = "365days", value_parser = ttl)]
    ttl: Duration,
    /// The directory with ca.crt and ca.key [default: this node's own]
    #[arg(long, value_name = "DIR")]
    ca: Option<PathBuf>,
    /// Where ca.crt, node.crt and node.key go
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub fn ca(out: &Path, name: &str, ttl: Duration) -> Outcome {
    for file in ["ca.crt", "ca.key"] {
        if out.join(file).exists() {
            return Err(Failure::new(
                Exit::Failed,
                format!(
                    "{} is there already; a new authority would lock out everybody who trusts it",
                    out.join(file).display()
                ),
            ));
        }
    }
    let authority = Authority::create(name, ttl)?;
    make_dir(out)?;
    write(&out.join("ca.key"), authority.key().expose(), 0o600)?;
    write(&out.join("ca.crt"), authority.certificate(), 0o644)?;
    anstream::eprintln!("certificate authority made in {}", out.display());
    Ok(())
}

impl Client {
    pub fn run(self, global: &Global) -> Outcome {
        let authority = authority(self.ca)?;
        let spec = ClientSpec {
            name: self.name.clone(),
            roles: vec![self.role],
            ttl: self.ttl,
        };
        let issued = authority.issue_client(&spec)?;
        if let Some(dir) = &self.pem {
            make_dir(dir)?;
            write(&dir.join("ca.crt"), &issued.ca, 0o644)?;
            write(&dir.join("client.crt"), &issued.cert, 0o644)?;
            write(&dir.join("client.key"), issued.key.expose(), 0o600)?;
            anstream::eprintln!("{} written to {}", described(&issued), dir.display());
            return Ok(());
        }
        let shown = described(&issued);
        let config = configuration(&self.name, issued, endpoints(global));
        match &self.out {
            Some(path) => {
                config
                    .save(path)
                    .map_err(|error| Failure::caused(Exit::Failed, &error))?;
                anstream::eprintln!("{shown} written to {}", path.display());
                Ok(())
            }
            None => output::print(
                &config
                    .to_yaml()
                    .map_err(|error| Failure::caused(Exit::Failed, &error))?,
            ),
        }
    }
}

impl Node {
    pub fn run(self) -> Outcome {
        let authority = authority(self.ca)?;
        let mut names = NodeNames {
            common_name: self.name.clone(),
            dns: vec![self.name],
            ips: Vec::new(),
        };
        for san in self.sans {
            match san {
                CertificateName::Dns(name) => names.dns.push(name),
                CertificateName::Ip(ip) => names.ips.push(ip),
            }
        }
        let issued = authority.issue_node(&names, self.ttl)?;
        make_dir(&self.out)?;
        write(&self.out.join("ca.crt"), &issued.ca, 0o644)?;
        write(&self.out.join("node.key"), issued.key.expose(), 0o600)?;
        write(&self.out.join("node.crt"), &issued.cert, 0o644)?;
        anstream::eprintln!("{} written to {}", described(&issued), self.out.display());
        Ok(())
    }
}

fn described(issued: &IssuedPem) -> String {
    format!(
        "certificate of {} ({}), valid until {},",
        issued.info.subject_cn,
        issued.info.organizations.join(", "),
        issued.info.not_after
    )
}

fn configuration(name: &str, issued: IssuedPem, endpoints: Vec<String>) -> ClientConfig {
    let context = Context {
        endpoints,
        ca: Some(issued.ca),
        crt: Some(issued.cert),
        key: Some(issued.key),
        ..Context::default()
    };
    let mut config = ClientConfig {
        context: name.to_owned(),
        ..ClientConfig::default()
    };
    config.contexts.insert(name.to_owned(), context);
    config
}

/// Those named, else those under which this node's own administrator reaches it.
fn endpoints(global: &Global) -> Vec<String> {
    if !global.endpoints.is_empty() {
        return global.endpoints.clone();
    }
    state_or_local(None)
        .ok()
        .and_then(|state| ClientConfig::load(&state.join("client.yaml")).ok())
        .and_then(|config| {
            config
                .get(None)
                .map(|(_, context)| context.endpoints.clone())
                .ok()
        })
        .unwrap_or_default()
}

fn make_dir(dir: &Path) -> Outcome {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| {
            Failure::new(
                Exit::Failed,
                format!("cannot make {}: {error}", dir.display()),
            )
        })
}

fn write(path: &Path, text: &str, mode: u32) -> Outcome {
    write_durable(path, text.as_bytes(), mode).map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("cannot write {}: {error}", path.display()),
        )
    })
}
