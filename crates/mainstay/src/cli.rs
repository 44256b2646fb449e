//! The command line as one table: help, man pages and completions are made from it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::commands::{
    cat, cell, completion, config, containers, cp, df, dmesg, du, events, free, health, logs, ls,
    man, netstat, pki, ps, restart, run, serve, stats, top, version,
};

/// Operate Linux machines by API: one node or all of them, no SSH, no shell
#[derive(Debug, Parser)]
#[command(
    name = "mainstay",
    version,
    max_term_width = 100,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        mainstay serve                          run a node\n  \
        mainstay version                        ask the node of the current context\n  \
        mainstay logs mainstay --tail 20 -f     follow the node's own log\n  \
        mainstay events --since 1h -o json      what happened in the last hour\n  \
        mainstay -n n1,n2,n3 ps --sort memory   the same of three nodes in one call\n\n\
        Exit codes: 0 done, 1 failed, 2 bad usage, 3 node unreachable, 4 TLS or certificate,\n\
        5 refused by role, 6 not found, 7 not served by the node, 8 some nodes failed, 9 timed out"
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command that talks to a node.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Nodes to ask, through the endpoint; comma-separated or repeated
    #[arg(short, long, global = true, value_name = "NODE", value_delimiter = ',')]
    pub nodes: Vec<String>,

    /// Endpoints to try in order, instead of the context's: HOST, HOST:PORT or unix:PATH
    #[arg(
        short,
        long,
        global = true,
        value_name = "ENDPOINT",
        value_delimiter = ','
    )]
    pub endpoints: Vec<String>,

    /// Context of the client configuration to use, instead of its current one
    #[arg(long, global = true, value_name = "NAME", env = "MAINSTAY_CONTEXT")]
    pub context: Option<String>,

    /// Client configuration file [default: ~/.config/mainstay/config.yaml, else the local node's]
    #[arg(
        long = "client-config",
        global = true,
        value_name = "FILE",
        env = "MAINSTAY_CONFIG"
    )]
    pub client_config: Option<PathBuf>,

    /// How results are printed
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub output: Format,

    /// How long to wait for a connection and for an answer (streams: for the connection only)
    #[arg(long, global = true, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    pub timeout: Duration,
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
    Events(events::Events),
    Logs(logs::Logs),
    Top(top::Top),
    Ps(ps::Ps),
    Free(free::Free),
    Df(df::Df),
    Du(du::Du),
    Netstat(netstat::Netstat),
    Dmesg(dmesg::Dmesg),
    Containers(containers::Containers),
    Stats(stats::Stats),
    Restart(restart::Restart),
    Run(run::Run),
    #[command(subcommand)]
    Cell(cell::Cell),
    Ls(ls::Ls),
    Cat(cat::Cat),
    Cp(cp::Cp),
    #[command(subcommand)]
    Config(config::Config),
    #[command(subcommand)]
    Pki(pki::Pki),
    Completion(completion::Completion),
    Man(man::Man),
}
