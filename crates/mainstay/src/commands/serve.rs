//! `mainstay serve`

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use mainstay_daemon::config::{CertificateName, LogLevel, PodsAddress, Span};
use mainstay_daemon::{Config, Ended, Overrides, Ready, handover};
use mainstay_slots::Begin;

use crate::build_info::build;
use crate::environment;
use crate::failure::{Exit, Failure, Outcome};
use crate::output;

/// Bound on worker threads; workloads need the other cores of a large machine.
const MAX_WORKERS: usize = 8;

/// Run the node daemon and serve its API
///
/// SIGTERM and SIGINT stop the daemon; SIGHUP reloads the configuration and certificates.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay serve\n  \
    mainstay serve --listen 0.0.0.0:50000 --name node1.example.org\n  \
    mainstay serve --state ./state --listen 127.0.0.1:0\n\n\
    The configuration file has a key for every option; docs/configuration.md lists them.")]
pub struct Serve {
    /// Configuration file [default: /etc/mainstay/config.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// State directory [default: /var/lib/mainstay, or $XDG_STATE_HOME/mainstay for an
    /// unprivileged user]
    #[arg(long, value_name = "DIR", env = environment::STATE)]
    state: Option<PathBuf>,

    /// TLS listen address of the API [default: 127.0.0.1:50000]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,

    /// Loopback listen address for original pod clients, read-only and without TLS [default: off]
    #[arg(long, value_name = "ADDR")]
    pods_listen: Option<PodsAddress>,

    /// Additional name or address in the node's certificate; may be repeated
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<CertificateName>,

    /// Log level: error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<LogLevel>,

    /// Grace period of open calls when the daemon stops [default: 10s]
    #[arg(long, value_name = "TIME")]
    stop_timeout: Option<Span>,
}

impl Serve {
    pub fn run(self) -> Outcome {
        handover::prepare();
        let overrides = Overrides {
            config: self.config,
            state: self.state,
            listen: self.listen,
            pods_listen: self.pods_listen,
            names: self.names,
            log_level: self.log_level,
            stop_timeout: self.stop_timeout,
        };
        let config =
            Config::load(&overrides).map_err(|error| Failure::caused(Exit::Usage, &error))?;
        // Before there is a second thread: it may execute another binary, or fork.
        let served_by = mainstay_daemon::serving_pid(&config.state);
        // SAFETY: the runtime, which starts threads, is built below.
        #[allow(unsafe_code)]
        let begin = unsafe { mainstay_slots::start(&config.state, served_by) };
        let notices = match begin {
            Begin::Serve { notices } => notices,
            Begin::Exit(0) => return Ok(()),
            Begin::Exit(code) => return Err(Failure::printed(Exit::Program(code))),
        };
        let workers = std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(MAX_WORKERS);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .thread_name("mainstay")
            .enable_all()
            .build()?;
        let served = runtime.block_on(mainstay_daemon::serve(
            config,
            overrides,
            build(),
            &notices,
            |ready| {
                // A closed stdout must not keep the daemon from serving.
                let _ = output::print(&greeting(ready));
            },
        ));
        // Blocked threads, such as a read of a hung mount, are abandoned.
        runtime.shutdown_background();
        match served.map_err(|error| Failure::caused(Exit::Failed, &error))? {
            Ended::Stopped => Ok(()),
            Ended::Replaced(replacement) => {
                let error = replacement.execute();
                let message = format!("cannot execute the daemon again: {error}");
                Err(Failure::new(Exit::Failed, message))
            }
        }
    }
}

fn greeting(ready: &Ready) -> String {
    let mut text = format!(
        "mainstay {} serves on {} (TLS) and {}\n",
        build().version,
        ready.listen,
        ready.socket.display()
    );
    if let Some(pods) = ready.pods_listen {
        text.push_str(&format!(
            "original pod clients read on {pods}, without TLS\n"
        ));
    }
    if let Some(socket) = &ready.aurae_socket {
        text.push_str(&format!(
            "clients of Aurae connect to {} (TLS)\n",
            socket.display()
        ));
    }
    text.push_str(&format!(
        "state: {}   ready in {} ms\n",
        ready.state.display(),
        ready.took.as_millis()
    ));
    if ready.first_start {
        text.push_str(
            "first start: created a certificate authority and an administrator certificate\n",
        );
    }
    match &ready.client_config {
        Some(client) => {
            let option = if is_found_by_default(client) {
                String::new()
            } else {
                format!(" --client-config {}", client.display())
            };
            let command = own_command();
            text.push_str(&format!(
                "try, in another shell:\n  {command} version{option}\n  \
                 {command} logs mainstay --tail 5{option}\n  \
                 {command} events --tail 10 -o json{option}\n"
            ));
        }
        None => text
            .push_str("the CA key is not on this node; issue client configurations where it is\n"),
    }
    text
}

/// Returns how to call this binary from another shell: by name if PATH finds it.
fn own_command() -> String {
    let Ok(own) = std::env::current_exe() else {
        return "mainstay".to_owned();
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let by_name = std::env::split_paths(&path)
        .map(|dir| dir.join("mainstay"))
        .find(|p| p.exists());
    match by_name.and_then(|found| found.canonicalize().ok()) {
        Some(found) if found == own => "mainstay".to_owned(),
        _ => own.display().to_string(),
    }
}

fn is_found_by_default(client: &std::path::Path) -> bool {
    let default = mainstay_daemon::config::default_state().map(|state| state.join("client.yaml"));
    default.is_ok_and(|default| default == client)
}
