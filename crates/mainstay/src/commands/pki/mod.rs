//! `mainstay pki`: certificates, issued where the CA key is.

mod issue;
mod renew;
mod show;

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use mainstay_daemon::config::CertificateName;
use mainstay_identity::{Authority, PkiDir, Role};

use crate::cli::Global;
use crate::environment::{self, local_state};
use crate::failure::{Failure, Outcome};

/// Issue, show and renew certificates
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
    mainstay pki client --name alice --role os:reader --ttl 24h > alice.yaml\n  \
    mainstay pki node --name node2 --san node2.example.org --san 10.0.0.6 --out node2-pki\n  \
    mainstay pki show")]
pub enum Pki {
    /// Create a certificate authority for a fleet
    #[command(after_help = "Examples:\n  mainstay pki ca --out fleet-ca\n  \
        mainstay pki ca --out fleet-ca --name example.org --ttl 10years")]
    Ca {
        /// Directory for ca.crt and ca.key, which must not exist in it
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Common name of the CA
        #[arg(long, default_value = "mainstay")]
        name: String,
        /// Validity period, from 1m to 100years
        #[arg(long, value_name = "TIME", default_value = "3650days", value_parser = ttl)]
        ttl: Duration,
    },
    /// Issue a client certificate and print a client configuration with it
    Client(issue::Client),
    /// Issue the certificate of another node, to be copied to its <state>/pki
    Node(issue::Node),
    /// Show certificates of this node, of a file or of a directory
    #[command(
        after_help = "Examples:\n  mainstay pki show\n  mainstay pki show alice.yaml\n  \
        mainstay pki show node2-pki -o json"
    )]
    Show {
        /// PEM file, client configuration or PKI directory [default: those of this node]
        path: Option<PathBuf>,
    },
    /// Renew the certificate of this node or of its administrator
    #[command(
        after_help = "Examples:\n  mainstay pki renew\n  mainstay pki renew client\n\n\
        A running daemon uses the renewed node certificate at once."
    )]
    Renew {
        /// Certificate to renew
        #[arg(value_enum, default_value_t = renew::Certificate::Node)]
        certificate: renew::Certificate,
        /// State directory of the node [default: that of this user's node]
        #[arg(long, value_name = "DIR", env = environment::STATE)]
        state: Option<PathBuf>,
    },
}

impl Pki {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Ca { out, name, ttl } => issue::ca(&out, &name, ttl),
            Self::Client(client) => client.run(global),
            Self::Node(node) => node.run(),
            Self::Show { path } => show::run(global, path),
            Self::Renew { certificate, state } => renew::run(certificate, state),
        }
    }
}

/// Parses a validity period from a minute to a hundred years.
fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = humantime::parse_duration(text)
        .map_err(|_| "write a duration: 24h, 30days, 1year".to_owned())?;
    let (min, max) = (
        Duration::from_secs(60),
        // A year of a duration is 365.25 days.
        Duration::from_secs(100 * 31_557_600),
    );
    if ttl < min || ttl > max {
        return Err("the validity period must be between 1m and 100years".to_owned());
    }
    Ok(ttl)
}

fn role(text: &str) -> Result<Role, String> {
    text.parse()
        .map_err(|error: mainstay_identity::UnknownRole| error.to_string())
}

fn certificate_name(text: &str) -> Result<CertificateName, String> {
    text.parse()
        .map_err(|error: mainstay_daemon::config::BadValue| error.to_string())
}

/// Returns the state directory: the one named, else that of the local node.
fn state_or_local(state: Option<PathBuf>) -> Outcome<PathBuf> {
    state
        .or_else(local_state)
        .ok_or_else(|| Failure::usage("state directory is unknown; name it with --state DIR"))
}

/// Loads the CA in `dir`, else that of the local node.
fn authority(dir: Option<PathBuf>) -> Outcome<Authority> {
    let dir = match dir {
        Some(dir) => dir,
        None => state_or_local(None)?.join("pki"),
    };
    Ok(PkiDir::new(dir).authority()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_the_validity_period_are_allowed() {
        for allowed in ["1m", "30days", "100years"] {
            assert!(ttl(allowed).is_ok(), "{allowed}");
        }
        for refused in ["59s", "101years", "soon"] {
            assert!(ttl(refused).is_err(), "{refused}");
        }
    }
}
