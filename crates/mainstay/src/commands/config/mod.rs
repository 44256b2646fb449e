//! `mainstay config`: contexts of the client configuration, and the configuration of nodes.

mod node;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use mainstay_identity::{CertificateInfo, ClientConfig, Context, PrivateKeyPem, Role};
use serde_json::{Value, json};

use crate::cli::{Format, Global};
use crate::failure::{Exit, Failure, Outcome, warn};
use crate::output;
use mainstay_client::format::{Table, counted};
use mainstay_client::{chain, config_path, load_config, user_config_path};

/// Manage the contexts of the client configuration, and the configuration of nodes
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
    mainstay config merge client.yaml        add the contexts of another file\n  \
    mainstay config list\n  \
    mainstay config use node1\n  \
    mainstay config info\n  \
    mainstay config node show                configuration of a node")]
pub enum Config {
    /// List the contexts
    #[command(
        visible_alias = "contexts",
        after_help = "Examples:\n  mainstay config list\n  mainstay config list -o json"
    )]
    List,
    /// Set the current context
    #[command(after_help = "Examples:\n  mainstay config use node1")]
    Use {
        /// Name of the context
        name: String,
    },
    /// Add or replace a context
    #[command(after_help = "Examples:\n  \
        mainstay config add prod -e 10.0.0.5,10.0.0.6 --ca ca.crt --crt me.crt --key me.key\n  \
        mainstay config add here --socket /var/lib/mainstay/run/mainstay.sock")]
    Add {
        /// Name of the context
        name: String,
        /// CA certificate (PEM)
        #[arg(long, value_name = "FILE", required_unless_present = "socket")]
        ca: Option<PathBuf>,
        /// Client certificate (PEM)
        #[arg(
            long,
            value_name = "FILE",
            requires = "key",
            required_unless_present = "socket"
        )]
        crt: Option<PathBuf>,
        /// Private key of the client certificate (PEM)
        #[arg(
            long,
            value_name = "FILE",
            requires = "crt",
            required_unless_present = "socket"
        )]
        key: Option<PathBuf>,
        /// Unix socket of a node on this machine, instead of endpoints
        #[arg(long, value_name = "PATH", conflicts_with_all = ["ca", "crt", "key"])]
        socket: Option<PathBuf>,
    },
    /// Add the contexts of another client configuration, such as a node's client.yaml
    #[command(after_help = "Examples:\n  mainstay config merge client.yaml\n\n\
        A context whose name is taken is added under another name.")]
    Merge {
        /// Client configuration file
        file: PathBuf,
    },
    /// Show the endpoints, name, role and expiry of a context
    #[command(
        after_help = "Examples:\n  mainstay config info\n  mainstay config info prod -o json"
    )]
    Info {
        /// Name of the context [default: the current one]
        name: Option<String>,
    },
    /// Remove a context and its private key
    #[command(after_help = "Examples:\n  mainstay config remove prod")]
    Remove {
        /// Name of the context
        name: String,
    },
    #[command(subcommand)]
    Node(node::Node),
}

impl Config {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::List => list(global),
            Self::Node(node) => super::block_on(node.run(global)),
            Self::Info { name } => info(global, name.as_deref().or(global.context.as_deref())),
            Self::Use { name } => change(global, |config| {
                config.use_context(&name)?;
                Ok(format!("current context is {name:?}"))
            }),
            Self::Remove { name } => change(global, |config| {
                config.remove(&name)?;
                Ok(format!("context {name:?} removed"))
            }),
            Self::Merge { file } => merge(global, &file),
            Self::Add {
                name,
                ca,
                crt,
                key,
                socket,
            } => {
                let context = Context {
                    endpoints: global.endpoints.clone(),
                    nodes: global.nodes.clone(),
                    socket,
                    ca: ca.as_deref().map(read_certificate).transpose()?,
                    crt: crt.as_deref().map(read_certificate).transpose()?,
                    key: key
                        .as_deref()
                        .map(read)
                        .transpose()?
                        .map(PrivateKeyPem::new),
                    ..Context::default()
                };
                add(global, name, context)
            }
        }
    }
}

fn add(global: &Global, name: String, context: Context) -> Outcome {
    if name.is_empty() {
        return Err(Failure::usage("the name of a context cannot be empty"));
    }
    if context.socket.is_some() && !context.endpoints.is_empty() {
        return Err(Failure::usage(
            "a context with --socket has no endpoints; omit either --socket or -e",
        ));
    }
    if context.socket.is_none() && context.endpoints.is_empty() {
        return Err(Failure::usage(
            "context has no endpoint; name one with -e HOST or --socket PATH",
        ));
    }
    if let Some(ca) = &context.ca {
        mainstay_identity::tls::client_config(ca, context.identity())
            .map_err(|error| Failure::caused(Exit::Tls, &error))?;
    }
    change(global, |config| {
        let message = format!("context {name:?} added");
        if config.context.is_empty() {
            config.context.clone_from(&name);
        }
        config.contexts.insert(name, context);
        Ok(message)
    })
}

fn merge(global: &Global, file: &Path) -> Outcome {
    // Often the output of `pki client`, written by a shell: with the mode of any other file.
    let (other, open) =
        ClientConfig::load_shared(file).map_err(mainstay_client::Error::ClientConfig)?;
    if let Some(mode) = open {
        warn(&format!(
            "{} has a private key and can be read by others (mode {mode:04o}); remove it when it is \
             merged",
            file.display()
        ));
    }
    let count = other.contexts.len();
    change(global, |config| {
        let before = config.contexts.len();
        let current = other.context.clone();
        let renamed = config.merge(other);
        if config.context.is_empty() {
            config.context = renamed
                .iter()
                .find(|renamed| renamed.from == current)
                .map_or(current, |renamed| renamed.to.clone());
        }
        // A context is never replaced: what is not new was there already.
        let added = config.contexts.len() - before;
        let unchanged = count.saturating_sub(added);
        let mut message = format!("{} added", counted(added as u64, "context"));
        if unchanged > 0 {
            message.push_str(&format!(", {unchanged} unchanged"));
        }
        message.push_str(&format!(" from {}", file.display()));
        for renamed in renamed {
            message.push_str(&format!("; {:?} renamed to {:?}", renamed.from, renamed.to));
        }
        Ok(message)
    })
}

/// Returns the file that `mainstay config` changes; never the local node's own.
fn writable_config_path(global: &Global) -> Outcome<PathBuf> {
    let path = global.client_config.clone();
    path.or_else(user_config_path).ok_or_else(|| {
        Failure::usage("the home directory is unknown; name the file with --client-config FILE")
    })
}

/// Changes the client configuration, creating the file if it does not exist.
fn change(
    global: &Global,
    edit: impl FnOnce(
        &mut ClientConfig,
    ) -> Result<String, mainstay_identity::client_config::ClientConfigError>,
) -> Outcome {
    let path = writable_config_path(global)?;
    let mut config = if path.exists() {
        load_config(&path)?
    } else {
        ClientConfig::default()
    };
    let message = edit(&mut config).map_err(|error| Failure::caused(Exit::NotFound, &error))?;
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        std::fs::create_dir_all(dir).map_err(|error| Failure::file("create", dir, &error))?;
    }
    config
        .save(&path)
        .map_err(|error| Failure::caused(Exit::Failed, &error))?;
    anstream::eprintln!("{message} ({})", path.display());
    Ok(())
}

fn list(global: &Global) -> Outcome {
    let config = load_config(&config_path(&global.options())?)?;
    match global.output {
        Format::Table => {
            let mut table =
                Table::new(&["CURRENT", "NAME", "ENDPOINTS", "NODES", "ROLE", "EXPIRES"]);
            for (name, context) in &config.contexts {
                let summary = Summary::of(context);
                table.row(vec![
                    if *name == config.context { "*" } else { "" }.to_owned(),
                    name.clone(),
                    summary.endpoints.join(","),
                    context.nodes.join(","),
                    summary.role,
                    summary.expires.unwrap_or_default(),
                ]);
            }
            output::print(&table.to_string())
        }
        format => {
            let contexts: Vec<Value> = config
                .contexts
                .iter()
                .map(|(name, context)| Summary::of(context).value(name, *name == config.context))
                .collect();
            output::print_document(format, &Value::from(contexts))
        }
    }
}

fn info(global: &Global, name: Option<&str>) -> Outcome {
    let path = config_path(&global.options())?;
    let config = load_config(&path)?;
    let (name, context) = config
        .get(name)
        .map_err(|error| Failure::caused(Exit::NotFound, &error))?;
    let summary = Summary::of(context);
    match global.output {
        Format::Table => output::print(&format!(
            "context:    {name}\nfile:       {}\nendpoints:  {}\nnodes:      {}\nname:       {}\nrole:       {}\nserial:     {}\nexpires:    {}\n",
            path.display(),
            summary.endpoints.join(", "),
            context.nodes.join(", "),
            summary.name,
            summary.role,
            summary.serial,
            summary.expires.as_deref().unwrap_or("-"),
        )),
        format => output::print_document(format, &summary.value(name, name == config.context)),
    }
}

/// The public properties of a context.
struct Summary {
    endpoints: Vec<String>,
    nodes: Vec<String>,
    name: String,
    role: String,
    serial: String,
    expires: Option<String>,
}

impl Summary {
    fn of(context: &Context) -> Self {
        let certificate = context
            .crt
            .as_deref()
            .and_then(|pem| CertificateInfo::from_pem(pem).ok());
        let endpoints = match &context.socket {
            Some(socket) => vec![format!("unix:{}", socket.display())],
            None => context.endpoints.clone(),
        };
        let role = certificate.as_ref().and_then(|certificate| {
            certificate
                .organizations
                .iter()
                .filter_map(|name| name.parse::<Role>().ok())
                .max()
        });
        Self {
            endpoints,
            nodes: context.nodes.clone(),
            name: certificate
                .as_ref()
                .map(|info| info.subject_cn.clone())
                .unwrap_or_default(),
            role: role.map(|role| role.to_string()).unwrap_or_default(),
            serial: certificate
                .as_ref()
                .map(|info| info.serial.clone())
                .unwrap_or_default(),
            expires: certificate.map(|info| info.not_after.to_string()),
        }
    }

    fn value(&self, name: &str, current: bool) -> Value {
        json!({
            "context": name,
            "current": current,
            "endpoints": self.endpoints,
            "nodes": self.nodes,
            "name": self.name,
            "role": self.role,
            "serial": self.serial,
            "expires": self.expires,
        })
    }
}

fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| {
        let failure = Failure::file("read", path, &error);
        Failure::usage(failure.message)
    })
}

fn read_certificate(path: &Path) -> Outcome<String> {
    let pem = read(path)?;
    CertificateInfo::from_pem(&pem).map_err(|error| {
        Failure::usage(format!(
            "invalid certificate {}: {}",
            path.display(),
            chain(&error)
        ))
    })?;
    Ok(pem)
}
