//! `mainstay config`: the contexts of the client configuration.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use mainstay_identity::{CertificateInfo, ClientConfig, Context, PrivateKeyPem, Role};
use serde_json::{Value, json};

use crate::cli::{Format, Global};
use crate::failure::{Exit, Failure, Outcome};
use crate::output;
use mainstay_client::format::Table;
use mainstay_client::{config_path, load_config, user_config_path};

/// Manage the contexts of the client configuration
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
    mainstay config merge client.yaml        take over the contexts of another file\n  \
    mainstay config list\n  \
    mainstay config use node1\n  \
    mainstay config info")]
pub enum Config {
    /// List the contexts
    List,
    /// Make a context the current one
    Use { name: String },
    /// Add or replace a context
    #[command(after_help = "Examples:\n  \
        mainstay config add prod -e 10.0.0.5,10.0.0.6 --ca ca.crt --crt me.crt --key me.key\n  \
        mainstay config add here --socket /var/lib/mainstay/run/mainstay.sock")]
    Add {
        name: String,
        /// The CA's certificate, PEM
        #[arg(long, value_name = "FILE", required_unless_present = "socket")]
        ca: Option<PathBuf>,
        /// The client's certificate, PEM
        #[arg(
            long,
            value_name = "FILE",
            requires = "key",
            required_unless_present = "socket"
        )]
        crt: Option<PathBuf>,
        /// Its key, PEM
        #[arg(
            long,
            value_name = "FILE",
            requires = "crt",
            required_unless_present = "socket"
        )]
        key: Option<PathBuf>,
        /// The unix socket of a node on this machine, instead of endpoints
        #[arg(long, value_name = "PATH", conflicts_with_all = ["ca", "crt", "key"])]
        socket: Option<PathBuf>,
    },
    /// Take over the contexts of another client configuration, such as a node's client.yaml
    Merge { file: PathBuf },
    /// Show a context: where it leads, who it makes you, and until when
    Info {
        /// [default: the current context]
        name: Option<String>,
    },
    /// Remove a context and its key
    Remove { name: String },
}

impl Config {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::List => list(global),
            Self::Info { name } => info(global, name.as_deref().or(global.context.as_deref())),
            Self::Use { name } => change(global, |config| {
                config.use_context(&name)?;
                Ok(format!("context {name:?} is now the current one"))
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
        return Err(Failure::usage("a context needs a name"));
    }
    if context.socket.is_none() && context.endpoints.is_empty() {
        return Err(Failure::usage(
            "name the node's endpoint with -e HOST, or its --socket PATH",
        ));
    }
    if let Some(ca) = &context.ca {
        mainstay_identity::tls::client_config(ca, context.identity())
            .map_err(|error| Failure::caused(Exit::Tls, &error))?;
    }
    change(global, |config| {
        let shown = format!("context {name:?} added");
        if config.context.is_empty() {
            config.context.clone_from(&name);
        }
        config.contexts.insert(name, context);
        Ok(shown)
    })
}

fn merge(global: &Global, file: &Path) -> Outcome {
    let other = load_config(file)?;
    let count = other.contexts.len();
    change(global, |config| {
        let chosen = other.context.clone();
        let renamed = config.merge(other);
        if config.context.is_empty() {
            config.context = renamed
                .iter()
                .find(|renamed| renamed.from == chosen)
                .map_or(chosen, |renamed| renamed.to.clone());
        }
        let mut shown = format!("{count} contexts taken over from {}", file.display());
        for renamed in renamed {
            shown.push_str(&format!("; {:?} is now {:?}", renamed.from, renamed.to));
        }
        Ok(shown)
    })
}

/// Returns the file that `mainstay config` changes; never the local node's own.
fn writable_config_path(global: &Global) -> Outcome<PathBuf> {
    let path = global.client_config.clone();
    path.or_else(user_config_path).ok_or_else(|| {
        Failure::usage("the home directory is unknown; name the file with --client-config FILE")
    })
}

/// Changes the user's own file, which need not exist yet.
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
    let done = edit(&mut config).map_err(|error| Failure::caused(Exit::NotFound, &error))?;
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        std::fs::create_dir_all(dir)?;
    }
    config
        .save(&path)
        .map_err(|error| Failure::caused(Exit::Failed, &error))?;
    anstream::eprintln!("{done} ({})", path.display());
    Ok(())
}

fn list(global: &Global) -> Outcome {
    let config = load_config(&config_path(&global.options())?)?;
    match global.output {
        Format::Table => {
            let mut table =
                Table::new(&["CURRENT", "NAME", "ENDPOINTS", "NODES", "ROLE", "EXPIRES"]);
            for (name, context) in &config.contexts {
                let facts = Facts::of(context);
                table.row(vec![
                    if *name == config.context { "*" } else { "" }.to_owned(),
                    name.clone(),
                    facts.endpoints.join(","),
                    context.nodes.join(","),
                    facts.role,
                    facts.expires.unwrap_or_default(),
                ]);
            }
            output::print(&table.to_string())
        }
        format => {
            let contexts: Vec<Value> = config
                .contexts
                .iter()
                .map(|(name, context)| Facts::of(context).value(name, *name == config.context))
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
    let facts = Facts::of(context);
    match global.output {
        Format::Table => output::print(&format!(
            "context:    {name}\nfile:       {}\nendpoints:  {}\nnodes:      {}\nname:       {}\nrole:       {}\nserial:     {}\nexpires:    {}\n",
            path.display(),
            facts.endpoints.join(", "),
            context.nodes.join(", "),
            facts.name,
            facts.role,
            facts.serial,
            facts.expires.as_deref().unwrap_or("-"),
        )),
        format => output::print_document(format, &facts.value(name, name == config.context)),
    }
}

/// What a context says about itself, without its secrets.
struct Facts {
    endpoints: Vec<String>,
    nodes: Vec<String>,
    name: String,
    role: String,
    serial: String,
    expires: Option<String>,
}

impl Facts {
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
    std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
}

fn read_certificate(path: &Path) -> Outcome<String> {
    let pem = read(path)?;
    CertificateInfo::from_pem(&pem)
        .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    Ok(pem)
}
