//! Issues certificates of CAs, clients and nodes.

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
    /// Name of the user, as in the audit log
    #[arg(long)]
    name: String,
    /// Role: os:reader, os:operator or os:admin
    #[arg(long, value_parser = role)]
    role: Role,
    /// Validity period, from 1m to 100years
    #[arg(long, value_name = "TIME", default_value = "365days", value_parser = ttl)]
    ttl: Duration,
    /// Directory of ca.crt and ca.key [default: that of this node]
    #[arg(long, value_name = "DIR")]
    ca: Option<PathBuf>,
    /// Write the client configuration to FILE instead of stdout
    #[arg(long, value_name = "FILE", conflicts_with = "pem")]
    out: Option<PathBuf>,
    /// Write ca.crt, client.crt and client.key to DIR instead
    #[arg(long, value_name = "DIR")]
    pem: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay pki node --name node2 --san node2.example.org --san 10.0.0.6 --out node2-pki\n\n\
    Copy the directory to the new node as <state>/pki before its first start.")]
pub struct Node {
    /// Host name of the node
    #[arg(long)]
    name: String,
    /// Additional DNS name or IP address; may be repeated
    #[arg(long = "san", value_name = "NAME", value_parser = certificate_name)]
    sans: Vec<CertificateName>,
    /// Validity period, from 1m to 100years
    #[arg(long, value_name = "TIME", default_value = "365days", value_parser = ttl)]
    ttl: Duration,
    /// Directory of ca.crt and ca.key [default: that of this node]
    #[arg(long, value_name = "DIR")]
    ca: Option<PathBuf>,
    /// Directory for ca.crt, node.crt and node.key
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub fn ca(out: &Path, name: &str, ttl: Duration) -> Outcome {
    for file in ["ca.crt", "ca.key"] {
        if out.join(file).exists() {
            return Err(Failure::new(
                Exit::Failed,
                format!(
                    "{} exists; a new CA would lock out every client of it, so name another directory",
                    out.join(file).display()
                ),
            ));
        }
    }
    let authority = Authority::create(name, ttl)?;
    create_dir(out)?;
    write(&out.join("ca.key"), authority.key().expose(), 0o600)?;
    write(&out.join("ca.crt"), authority.certificate(), 0o644)?;
    anstream::eprintln!("certificate authority created in {}", out.display());
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
            create_dir(dir)?;
            write(&dir.join("ca.crt"), &issued.ca, 0o644)?;
            write(&dir.join("client.crt"), &issued.cert, 0o644)?;
            write(&dir.join("client.key"), issued.key.expose(), 0o600)?;
            anstream::eprintln!("{} written to {}", describe(&issued), dir.display());
            return Ok(());
        }
        let description = describe(&issued);
        let config = configuration(&self.name, issued, endpoints(global));
        match &self.out {
            Some(path) => {
                config
                    .save(path)
                    .map_err(|error| Failure::caused(Exit::Failed, &error))?;
                anstream::eprintln!("{description} written to {}", path.display());
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
        create_dir(&self.out)?;
        write(&self.out.join("ca.crt"), &issued.ca, 0o644)?;
        write(&self.out.join("node.key"), issued.key.expose(), 0o600)?;
        write(&self.out.join("node.crt"), &issued.cert, 0o644)?;
        anstream::eprintln!("{} written to {}", describe(&issued), self.out.display());
        Ok(())
    }
}

fn describe(issued: &IssuedPem) -> String {
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

/// Returns the endpoints named, else those of this node's administrator.
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

fn create_dir(dir: &Path) -> Outcome {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| Failure::file("create", dir, &error))
}

fn write(path: &Path, text: &str, mode: u32) -> Outcome {
    write_durable(path, text.as_bytes(), mode).map_err(|error| Failure::file("write", path, &error))
}
