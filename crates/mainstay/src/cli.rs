//! The command line, from which help, man pages and completions are generated.

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use mainstay_client::Options;
use mainstay_client::format::parse_duration;

use crate::commands::{
    cat, cell, cgroups, completion, config, containers, cp, df, disks, dmesg, du, events, free,
    health, interfaces, logs, ls, man, netstat, pcap, pki, ps, reboot, reset, restart, rollback,
    routes, run, schedule, serve, service, services, shutdown, slots, stats, support, time, top,
    upgrade, upgrade_image, version,
};
use crate::environment;
use crate::failure::Exit;

/// Operate Linux machines through an API: one node or many, without SSH or a shell
#[derive(Debug, Parser)]
#[command(
    name = "mainstay",
    version,
    max_term_width = 100,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = after_help()
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

fn after_help() -> String {
    let codes = Exit::ALL.map(|exit| format!("{} {}", exit.code(), exit.summary()));
    // Four codes per line keep to the width of a terminal.
    let codes = codes.chunks(4).map(|line| line.join(", "));
    format!(
        "Examples:\n  \
        mainstay serve                          run a node\n  \
        mainstay version                        version of the node of the current context\n  \
        mainstay logs mainstay --tail 20 -f     follow the log of the daemon\n  \
        mainstay events --since 1h -o json      events of the last hour\n  \
        mainstay -n n1,n2,n3 ps --sort memory   processes of three nodes in one call\n\n\
        Exit codes:\n  {}",
        codes.collect::<Vec<_>>().join(",\n  ")
    )
}

/// Parses the command line of this process.
pub fn parse() -> Result<Cli, clap::Error> {
    let matches = Cli::command().try_get_matches()?;
    check_ignored(&matches)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut Cli::command()))
}

/// Fails for a global option without effect on the command: an option that is silently ignored is a
/// wrong answer.
fn check_ignored(root: &ArgMatches) -> Result<(), clap::Error> {
    let mut path = Vec::new();
    let mut matches = root;
    while let Some((name, below)) = matches.subcommand() {
        path.push(name);
        matches = below;
    }
    let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let connection = ["nodes", "endpoints", "context", "timeout"].as_slice();
    let ignored: &[&str] = match path.as_slice() {
        ["serve" | "completion" | "man"] => &[
            "nodes",
            "endpoints",
            "context",
            "timeout",
            "client_config",
            "output",
        ],
        ["config", "list"] | ["schedule", "calendar"] => connection,
        ["config", "info"] => &["nodes", "endpoints", "timeout"],
        ["config", "add"] => &["context", "timeout", "output"],
        ["config", _] => &["nodes", "endpoints", "context", "timeout", "output"],
        ["pki", "client"] => &["nodes", "context", "timeout", "client_config", "output"],
        ["pki", "show"] => &["nodes", "endpoints", "context", "timeout", "client_config"],
        ["pki", _] => &[
            "nodes",
            "endpoints",
            "context",
            "timeout",
            "client_config",
            "output",
        ],
        ["upgrade-image", _] => &["nodes", "endpoints", "context", "timeout", "client_config"],
        ["cat" | "cp" | "run"] => &["output"],
        ["version"] if matches.get_flag("client") => connection,
        _ => &[],
    };
    let Some(id) = ignored.iter().find(|id| given(id)) else {
        return Ok(());
    };
    let command = path.join(" ");
    Err(Cli::command().error(
        ErrorKind::ArgumentConflict,
        format!(
            "--{} has no effect on mainstay {command}",
            id.replace('_', "-")
        ),
    ))
}

/// Options of every command that calls a node.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Call these nodes through the endpoint; comma-separated or repeated
    #[arg(short, long, global = true, value_name = "NODE", value_delimiter = ',')]
    pub nodes: Vec<String>,

    /// Connect to the first of these that answers: HOST, HOST:PORT or unix:PATH [default: the
    /// context's]
    #[arg(
        short,
        long,
        global = true,
        value_name = "ENDPOINT",
        value_delimiter = ','
    )]
    pub endpoints: Vec<String>,

    /// Context of the client configuration [default: the current one]
    #[arg(long, global = true, value_name = "NAME", env = environment::CONTEXT)]
    pub context: Option<String>,

    /// Client configuration file [default: ~/.config/mainstay/config.yaml, else the local node's]
    #[arg(
        long = "client-config",
        global = true,
        value_name = "FILE",
        env = environment::CONFIG
    )]
    pub client_config: Option<PathBuf>,

    /// Output format
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub output: Format,

    /// Timeout of connecting and of one answer; for streams, of connecting only
    #[arg(long, global = true, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub timeout: Duration,
}

impl Global {
    /// Returns the connection options of the client.
    pub fn options(&self) -> Options {
        Options {
            config_file: self.client_config.clone(),
            local_state: environment::local_state(),
            context: self.context.clone(),
            endpoints: self.endpoints.clone(),
            nodes: self.nodes.clone(),
            timeout: self.timeout,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
    Yaml,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Serve(serve::Serve),
    Version(version::Version),
    Health(health::Health),
    Services(services::Services),
    Service(service::Service),
    Events(events::Events),
    Logs(logs::Logs),
    Top(top::Top),
    Ps(ps::Ps),
    Free(free::Free),
    Df(df::Df),
    Du(du::Du),
    Disks(disks::Disks),
    Netstat(netstat::Netstat),
    Interfaces(interfaces::Interfaces),
    Routes(routes::Routes),
    Cgroups(cgroups::Cgroups),
    Time(time::Time),
    Pcap(pcap::Pcap),
    Dmesg(dmesg::Dmesg),
    Containers(containers::Containers),
    Stats(stats::Stats),
    Restart(restart::Restart),
    Reboot(reboot::Reboot),
    Shutdown(shutdown::Shutdown),
    Reset(reset::Reset),
    Run(Box<run::Run>),
    #[command(subcommand)]
    Cell(cell::Cell),
    #[command(subcommand)]
    Schedule(Box<schedule::Schedule>),
    Ls(ls::Ls),
    Cat(cat::Cat),
    Cp(cp::Cp),
    #[command(subcommand)]
    Config(config::Config),
    #[command(subcommand)]
    Pki(pki::Pki),
    Support(support::Support),
    Upgrade(upgrade::Upgrade),
    Rollback(rollback::Rollback),
    Slots(slots::Slots),
    #[command(subcommand)]
    UpgradeImage(upgrade_image::UpgradeImage),
    Completion(completion::Completion),
    Man(man::Man),
}
