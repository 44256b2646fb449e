//! `mainstay pki`: certificates, made where the CA's key is.

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
    /// Make a certificate authority in a directory of its own, for a fleet
    Ca {
        /// Where ca.crt and ca.key go; must not hold any yet
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// What it is called
        #[arg(long, default_value = "mainstay")]
        name: String,
        #[arg(long, value_name = "TIME", default_value = "3650days", value_parser = ttl)]
        ttl: Duration,
    },
    /// Issue a client certificate and print a client configuration with it
    Client(issue::Client),
    /// Issue the certificate of another node, ready to be copied into its <state>/pki
    Node(issue::Node),
    /// Show certificates: of this node, or in a file or directory
    Show {
        /// A PEM file, a client configuration or a pki directory [default: this node's own]
        path: Option<PathBuf>,
    },
    /// Issue this node's certificate, or the administrator's, again before it is due
    Renew {
        /// What to renew
        #[arg(value_enum, default_value_t = renew::What::Node)]
        what: renew::What,
        /// The node's state directory
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
            Self::Renew { what, state } => renew::run(what, state),
        }
    }
}

/// A lifetime between a minute and a hundred years.
fn ttl(text: &str) -> Result<Duration, String> {
    let ttl =
        humantime::parse_duration(text).map_err(|_| "write 24h, 30days or 1year".to_owned())?;
    let (least, most) = (
        Duration::from_secs(60),
        Duration::from_secs(100 * 365 * 24 * 3600),
    );
    if ttl < least || ttl > most {
        return Err("a certificate lives between 1m and 100years".to_owned());
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

/// The state directory of the node on this machine.
fn state_or_local(state: Option<PathBuf>) -> Outcome<PathBuf> {
    state
        .or_else(local_state)
        .ok_or_else(|| Failure::usage("no state directory is known; name one with --state DIR"))
}

/// The authority in `dir`, else that of the node on this machine.
fn authority(dir: Option<PathBuf>) -> Outcome<Authority> {
    let dir = match dir {
        Some(dir) => dir,
        None => state_or_local(None)?.join("pki"),
    };
    Ok(PkiDir::new(dir).authority()?)
}
